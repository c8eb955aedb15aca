"""Table definitions of a Run: every table, column, type and unit, the same for all formats.

Times are int64 nanoseconds, sizes are bytes, bandwidth is bytes / ns = GB/s (decimal). What a format
does not know is null, never 0. Ranks are global unless a column says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

BIGINT, DOUBLE, VARCHAR, BOOLEAN = "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"


@dataclass(frozen=True)
class ColumnSchema:
    name: str
    type: str
    unit: str
    about: str


@dataclass(frozen=True)
class TableSchema:
    name: str
    row: str
    columns: tuple[ColumnSchema, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> ColumnSchema:
        return next(column for column in self.columns if column.name == name)


def _columns(text: str) -> tuple[ColumnSchema, ...]:
    """One column per line: name, type, unit, meaning."""
    rows = (line.split(None, 3) for line in text.strip().splitlines())
    return tuple(ColumnSchema(name, kind, "" if unit == "-" else unit, about) for name, kind, unit, about in rows)


RANKS = TableSchema(
    "ranks",
    "rank",
    _columns("""
    rank          BIGINT   -   global rank
    host          VARCHAR  -   host name or address, if known
    device        BIGINT   -   device number on its host
    card          VARCHAR  -   model of the device, if recorded
    stage         BIGINT   -   pipeline stage, 0-based: the pipeline coordinate
    dp            BIGINT   -   data-parallel coordinate: its index in its group of this kind; null if it has none or several
    tp            BIGINT   -   tensor-parallel coordinate
    cp            BIGINT   -   context-parallel coordinate
    ep            BIGINT   -   expert-parallel coordinate
    format        VARCHAR  -   reader of the files of this rank
    path          VARCHAR  -   directory of the files, relative to the source
    clock_offset  BIGINT   ns  subtracted from the timestamps of this rank to get the cluster clock
    complete      BOOLEAN  -   false when data of this rank is missing or truncated
    note          VARCHAR  -   problem found with this rank
"""),
)

GROUPS = TableSchema(
    "groups",
    "communication group × rank",
    _columns("""
    group       VARCHAR  -  communicator id as the collectives spell it
    kind        VARCHAR  -  dp, tp, pp, ep, cp, world or other
    index       BIGINT   -  rank number inside the communicator
    rank        BIGINT   -  global rank
    source      VARCHAR  -  declared (the recording names the group) or inferred
    confidence  DOUBLE   fraction  how sure an inferred group is; null where it is declared
"""),
)

STEPS = TableSchema(
    "steps",
    "rank × step",
    _columns("""
    rank              BIGINT  -   global rank
    step              BIGINT  -   step number as recorded
    start             BIGINT  ns  start of the step
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

KERNELS = TableSchema(
    "kernels",
    "kernel execution",
    _columns("""
    rank           BIGINT   -   global rank
    step           BIGINT   -   step number
    name           VARCHAR  -   kernel name
    type           VARCHAR  -   operator type
    core           VARCHAR  -   AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV, AI_CPU, COMMUNICATION, HOST_CPU, GPU
    stream         BIGINT   -   stream number
    start          BIGINT   ns  start
    duration       BIGINT   ns  execution time
    wait           BIGINT   ns  waiting before execution, as the device recorded it
    launch         BIGINT   ns  when the host launched it
    operator       VARCHAR  -   innermost operator of the framework around the launch
    module         VARCHAR  -   innermost module of the model around the launch, else the innermost named range (NVTX)
    code           VARCHAR  -   innermost Python function around the launch
    input_shapes   VARCHAR  -   "4096,8192;8192,1280"
    input_types    VARCHAR  -   "FLOAT16;FLOAT16"
    output_shapes  VARCHAR  -   "4096,1280"
"""),
)

OPERATORS = TableSchema(
    "operators",
    "rank × operator, over the whole recording",
    _columns("""
    rank   BIGINT   -   global rank
    level  VARCHAR  -   type or name: the level of aggregation
    name   VARCHAR  -   operator type or full name
    type   VARCHAR  -   operator type
    core   VARCHAR  -   where it ran
    count  BIGINT   -   executions
    time   BIGINT   ns  total
    min    BIGINT   ns  shortest
    max    BIGINT   ns  longest
"""),
)

COLLECTIVES = TableSchema(
    "collectives",
    "rank × collective execution",
    _columns("""
    rank      BIGINT   -   global rank
    step      BIGINT   -   step number
    group     VARCHAR  -   communicator, see groups; null where the format has none
    op        VARCHAR  -   all_reduce, all_gather, all_to_all, send, receive, … (core/collective_names.py)
    name      VARCHAR  -   as recorded
    sequence  BIGINT   -   same (group, op, sequence) on two ranks = the same collective
    peer      BIGINT   -   for send and receive: the global rank on the other side
    start     BIGINT   ns  arrival of this rank
    duration  BIGINT   ns  elapsed from arrival to end
    transit   BIGINT   ns  moving data
    wait      BIGINT   ns  waiting for others (all notify waits that are not part of a transfer)
    sync      BIGINT   ns  the part of wait before the first byte moved
    idle      BIGINT   ns  neither moving data nor waiting
    bytes     BIGINT   B   moved by this rank over links to other ranks
"""),
)

TRANSFERS = TableSchema(
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

PACKETS = TableSchema(
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

MEMORY = TableSchema(
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

RANKS_MEMORY = TableSchema(
    "ranks_memory",
    "rank",
    _columns("""
    rank      BIGINT   -  global rank
    peak      BIGINT   B  highest use of device memory
    capacity  BIGINT   B  device memory in total
    static    BIGINT   B  part of the peak that lives as long as the graph
    basis     VARCHAR  -  measured or theoretical
"""),
)

FLOPS = TableSchema(
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

INPUT_PIPELINE = TableSchema(
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

INPUT_STEPS = TableSchema(
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

HOST_CALLS = TableSchema(
    "host_calls",
    "rank × API",
    _columns("""
    rank   BIGINT   -   global rank
    layer  VARCHAR  -   acl, runtime, node, model, hccl, framework, input
    name   VARCHAR  -   API
    count  BIGINT   -   calls
    time   BIGINT   ns  total
    min    BIGINT   ns  shortest
    max    BIGINT   ns  longest
"""),
)

IDLE_CALLS = TableSchema(
    "idle_calls",
    "rank × step × call of the device's runtime during which the device did nothing",
    _columns("""
    rank      BIGINT   -   global rank
    step      BIGINT   -   step number
    name      VARCHAR  -   call, e.g. cudaMalloc
    operator  VARCHAR  -   operator of the framework around it
    code      VARCHAR  -   Python function around it
    count     BIGINT   -   calls
    time      BIGINT   ns  the device was idle in this step while the host was inside these calls
"""),
)

L2_CACHE = TableSchema(
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

COUNTERS = TableSchema(
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

EVENTS = TableSchema(
    "events",
    "timeline event",
    _columns("""
    rank      BIGINT   -   global rank
    track     VARCHAR  -   process/thread as the recording names them
    name      VARCHAR  -   event
    category  VARCHAR  -   category
    start     BIGINT   ns  start
    duration  BIGINT   ns  length
    depth     BIGINT   -   nesting level, where the format has it
    args      VARCHAR  -   arguments as the recording has them, a JSON object
"""),
)

FLOWS = TableSchema(
    "flows",
    "arrow between two timeline events",
    _columns("""
    rank         BIGINT   -   global rank
    category     VARCHAR  -   ac2g (launch to device work), fwdbwd (forward to backward), …
    name         VARCHAR  -   as recorded
    start_track  VARCHAR  -   track it comes from, see events
    start        BIGINT   ns  when it leaves; the event of the track that is open then
    end_track    VARCHAR  -   track it goes to
    end          BIGINT   ns  when it arrives
"""),
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        RANKS,
        GROUPS,
        STEPS,
        KERNELS,
        OPERATORS,
        COLLECTIVES,
        TRANSFERS,
        PACKETS,
        MEMORY,
        RANKS_MEMORY,
        FLOPS,
        INPUT_PIPELINE,
        INPUT_STEPS,
        HOST_CALLS,
        IDLE_CALLS,
        L2_CACHE,
        COUNTERS,
        EVENTS,
        FLOWS,
    )
}

INPUT_WAIT = "coalesce(data_wait, if(preparing IS NULL, NULL, least(preparing, free)))"
"""Input wait of a rank in ns, SQL over `steps`: as recorded, else the time before the first device work, at most the free time,
because a host that runs ahead prepares a step while the card still works on another one."""
