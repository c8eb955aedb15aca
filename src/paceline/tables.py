"""The vocabulary of a Run: every table, column, type and unit, for every format.

Times are int64 nanoseconds, sizes are bytes, bandwidth is bytes / ns = GB/s (decimal). What a format
does not know is null, never 0. Ranks are global unless a column says otherwise.

This module stands left of `formats` and `run` on the one-way road, because both speak this vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

BIGINT, DOUBLE, VARCHAR, BOOLEAN = "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    unit: str
    about: str


@dataclass(frozen=True)
class Table:
    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


def _columns(text: str) -> tuple[Column, ...]:
    """One column a line: name, type, unit, meaning."""
    rows = (line.split(None, 3) for line in text.strip().splitlines())
    return tuple(Column(name, kind, "" if unit == "-" else unit, about) for name, kind, unit, about in rows)


RANKS = Table(
    "ranks",
    "rank",
    _columns("""
    rank          BIGINT   -   global rank
    host          VARCHAR  -   host name or address, if anything tells it
    device        BIGINT   -   device number on its host
    stage         BIGINT   -   pipeline stage, 0-based
    format        VARCHAR  -   reader that understood this rank's files
    path          VARCHAR  -   where the files lie, relative to the source
    clock_offset  BIGINT   ns  what was subtracted from this rank's timestamps to reach the cluster clock
    complete      BOOLEAN  -   false when something of this rank is missing or was cut off
    note          VARCHAR  -   what is odd about this rank
"""),
)

GROUPS = Table(
    "groups",
    "communication group × rank",
    _columns("""
    group  VARCHAR  -  communicator id as the collectives spell it
    kind   VARCHAR  -  dp, tp, pp, ep, cp, world or other
    index  BIGINT   -  rank number inside the communicator
    rank   BIGINT   -  global rank
"""),
)

STEPS = Table(
    "steps",
    "rank × step",
    _columns("""
    rank              BIGINT  -   global rank
    step              BIGINT  -   step number as recorded
    start             BIGINT  ns  begin of the step
    end               BIGINT  ns  end of the step
    duration          BIGINT  ns  end - start, or computing + exposed + free where only the split is known
    data_wait         BIGINT  ns  iteration interval: from the start of the step to the first forward operator
    forward_backward  BIGINT  ns  first forward to last backward operator
    tail              BIGINT  ns  after the last backward operator
    computing         BIGINT  ns  union of the computing intervals
    communication     BIGINT  ns  union of the communication intervals
    overlapped        BIGINT  ns  communication hidden behind computing
    exposed           BIGINT  ns  communication not hidden
    free              BIGINT  ns  neither computing nor communicating
    bubble            BIGINT  ns  waiting for a pipeline neighbour (receive)
    preparing         BIGINT  ns  from the step's start to its first device work
"""),
)

KERNELS = Table(
    "kernels",
    "kernel execution",
    _columns("""
    rank           BIGINT   -   global rank
    step           BIGINT   -   step number
    name           VARCHAR  -   kernel name
    type           VARCHAR  -   operator type
    core           VARCHAR  -   AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV, AI_CPU, COMMUNICATION, HOST_CPU, GPU
    stream         BIGINT   -   stream number
    start          BIGINT   ns  begin
    duration       BIGINT   ns  execution time
    wait           BIGINT   ns  waiting before execution, as the device recorded it
    input_shapes   VARCHAR  -   "4096,8192;8192,1280"
    input_types    VARCHAR  -   "FLOAT16;FLOAT16"
    output_shapes  VARCHAR  -   "4096,1280"
"""),
)

OPERATORS = Table(
    "operators",
    "rank × operator, over the whole recording",
    _columns("""
    rank   BIGINT   -   global rank
    level  VARCHAR  -   type or name: what was summed up
    name   VARCHAR  -   operator type or full name
    type   VARCHAR  -   operator type
    core   VARCHAR  -   where it ran
    count  BIGINT   -   executions
    time   BIGINT   ns  total
    min    BIGINT   ns  shortest
    max    BIGINT   ns  longest
"""),
)

COLLECTIVES = Table(
    "collectives",
    "rank × collective execution",
    _columns("""
    rank      BIGINT   -   global rank
    step      BIGINT   -   step number
    group     VARCHAR  -   communicator, see groups; null where the format does not tell
    op        VARCHAR  -   all_reduce, all_gather, all_to_all, send, receive, … (formats/collective_names.py)
    name      VARCHAR  -   as recorded
    sequence  BIGINT   -   same (group, op, sequence) on two ranks = the same collective
    peer      BIGINT   -   for send and receive: the global rank on the other side
    start     BIGINT   ns  arrival of this rank
    duration  BIGINT   ns  elapsed from arrival to end
    transit   BIGINT   ns  moving data
    wait      BIGINT   ns  waiting for others (all notify waits that are not part of a transfer)
    sync      BIGINT   ns  the part of wait before the first byte moved
    idle      BIGINT   ns  neither
    bytes     BIGINT   B   moved by this rank over links to other ranks
"""),
)

TRANSFERS = Table(
    "transfers",
    "rank × collective (or operator type) × link",
    _columns("""
    rank       BIGINT   -   global rank that recorded it
    step       BIGINT   -   step number
    group      VARCHAR  -   communicator
    name       VARCHAR  -   collective, or "<type>-total" where only sums were recorded
    sequence   BIGINT   -   sequence of the collective, null for sums
    src        BIGINT   -   sender
    dst        BIGINT   -   receiver
    scope      VARCHAR  -   global, or group when src and dst could not be translated to global ranks
    transport  VARCHAR  -   HCCS, RDMA, PCIE, SDMA, SIO, LOCAL, NCCL or GLOO
    bytes      BIGINT   B   moved
    duration   BIGINT   ns  time spent moving them
    wait       BIGINT   ns  waiting inside the transfer (RDMA acknowledgements)
"""),
)

PACKETS = Table(
    "packets",
    "rank × collective × transport × packet size",
    _columns("""
    rank          BIGINT   -   global rank
    step          BIGINT   -   step number
    group         VARCHAR  -   communicator
    name          VARCHAR  -   collective
    sequence      BIGINT   -   sequence of the collective
    transport     VARCHAR  -   HCCS, RDMA, PCIE, SDMA, SIO
    packet_bytes  BIGINT   B   size of one packet
    count         BIGINT   -   packets of this size
    duration      BIGINT   ns  time of all of them
"""),
)

MEMORY = Table(
    "memory",
    "rank × time (or operator)",
    _columns("""
    rank       BIGINT   -   global rank
    kind       VARCHAR  -   sample (process), module (CANN), operator (one allocation), node (theoretical)
    name       VARCHAR  -   component, operator or node
    time       BIGINT   ns  when (null for theoretical values)
    position   BIGINT   -   node number for kind = node
    size       BIGINT   B   allocation size for kind = operator
    lifetime   BIGINT   ns  how long the allocation lived
    allocated  BIGINT   B   allocated in all
    reserved   BIGINT   B   reserved in all
    active     BIGINT   B   active in all
"""),
)

RANKS_MEMORY = Table(
    "ranks_memory",
    "rank",
    _columns("""
    rank      BIGINT   -  global rank
    peak      BIGINT   B  highest use of device memory
    capacity  BIGINT   B  device memory there is
    static    BIGINT   B  part of the peak that lives as long as the graph
    basis     VARCHAR  -  measured or theoretical
"""),
)

FLOPS = Table(
    "flops",
    "rank (× operator)",
    _columns("""
    rank         BIGINT   -         global rank
    name         VARCHAR  -         operator; null = the whole rank
    unit         VARCHAR  -         cube or vector, null when not split
    flops        DOUBLE   FLOP      work
    flops_per_s  DOUBLE   FLOP/s    rate
    utilisation  DOUBLE   fraction  of the peak rate
"""),
)

INPUT_PIPELINE = Table(
    "input_pipeline",
    "rank × dataset operator",
    _columns("""
    rank            BIGINT   -         global rank
    op_id           BIGINT   -         operator number, 0 = the root nearest to the device
    op              VARCHAR  -         operator type
    stage           VARCHAR  -         stage inside the operator, where the format has one
    parent          BIGINT   -         op_id of the consumer
    workers         BIGINT   -         parallel workers
    queue_size      DOUBLE   -         mean length of the output queue
    queue_capacity  BIGINT   -         capacity of the output queue
    queue_empty     DOUBLE   fraction  of samples with an empty output queue
    count           BIGINT   -         occurrences
    time            BIGINT   ns        total time
    cpu             DOUBLE   %         mean CPU use (100 = one core)
"""),
)

INPUT_STEPS = Table(
    "input_steps",
    "rank × step × queue",
    _columns("""
    rank        BIGINT   -   global rank
    step        BIGINT   -   batch number
    queue       VARCHAR  -   device_queue, iterator or get_next
    size        BIGINT   -   batches waiting in the queue
    capacity    BIGINT   -   capacity of the queue
    get_time    BIGINT   ns  getting a batch from the pipeline
    push_time   BIGINT   ns  pushing it on
    total_time  BIGINT   ns  both
    time        BIGINT   ns  when it was sampled
"""),
)

HOST_CALLS = Table(
    "host_calls",
    "rank × API",
    _columns("""
    rank   BIGINT   -   global rank
    layer  VARCHAR  -   acl, runtime, node, model, hccl, framework
    name   VARCHAR  -   API
    count  BIGINT   -   calls
    time   BIGINT   ns  total
    min    BIGINT   ns  shortest
    max    BIGINT   ns  longest
"""),
)

L2_CACHE = Table(
    "l2_cache",
    "rank × task",
    _columns("""
    rank         BIGINT   -         global rank
    stream       BIGINT   -         stream number
    task         BIGINT   -         task number
    name         VARCHAR  -         operator
    hit_rate     DOUBLE   fraction  of L2 accesses that hit
    victim_rate  DOUBLE   fraction  of L2 lines written back early
"""),
)

COUNTERS = Table(
    "counters",
    "sample of a hardware counter",
    _columns("""
    rank    BIGINT   -   global rank
    name    VARCHAR  -   counter, e.g. AI Core Freq
    series  VARCHAR  -   series inside it, e.g. MHz
    time    BIGINT   ns  when
    value   DOUBLE   -   reading
"""),
)

EVENTS = Table(
    "events",
    "timeline event",
    _columns("""
    rank      BIGINT   -   global rank
    track     VARCHAR  -   process/thread as the recording names them
    name      VARCHAR  -   event
    category  VARCHAR  -   category
    start     BIGINT   ns  begin
    duration  BIGINT   ns  length
    depth     BIGINT   -   nesting level where the format tells it
"""),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RANKS, GROUPS, STEPS, KERNELS, OPERATORS, COLLECTIVES, TRANSFERS, PACKETS, MEMORY, RANKS_MEMORY,
        FLOPS, INPUT_PIPELINE, INPUT_STEPS, HOST_CALLS, L2_CACHE, COUNTERS, EVENTS,
    )
}  # fmt: skip

INPUT_WAIT = "coalesce(data_wait, if(preparing IS NULL, NULL, least(preparing, free)))"
"""ns a rank waited for input, in SQL over `steps`: recorded, else what came before its first device work, if it was idle then;
a host that runs ahead prepares a step while the card still works on another one."""
