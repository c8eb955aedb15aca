"""ModelArts training-job requests through the vendor's SDK: signed, retried, answers as our own types."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import msgspec

from paceline.core.errors import PacelineError, UsageError
from paceline.core.waiting import waiting_for
from paceline.jobs.description import FrameworkEngine, ModelArtsSettings
from paceline.jobs.modelarts.endpoint import ModelArtsEndpoint, find_endpoint
from paceline.storage.reachability import require_answer
from paceline.storage.secret import redact
from paceline.storage.store_errors import DeniedError, MissingError, StorageError, ThrottledError, TransientError
from paceline.storage.transfer.retry import Backoff, retry_call

_TIMEOUT = (10, 60)
_BACKOFF = Backoff(first_wait=0.5, longest_wait=5.0, patience=20.0)
"""For one request; `follow.wait` asks again after that, without limit."""
_PAGE = 50


class WorkerTask(msgspec.Struct, frozen=True):
    name: str
    exit_code: int | None = None
    message: str = ""


class CloudJob(msgspec.Struct, frozen=True):
    """A training job as ModelArts reports it."""

    id: str
    name: str
    phase: str
    started: float | None = None
    ended: float | None = None
    tasks: tuple[WorkerTask, ...] = ()


class OfferedFlavor(msgspec.Struct, frozen=True):
    """A machine type."""

    id: str
    name: str
    cards: int | None = None
    product: str = ""
    """Of the cards."""


class OfferedPool(msgspec.Struct, frozen=True):
    """A dedicated pool."""

    id: str
    name: str
    phase: str = ""


class LogPreview(msgspec.Struct, frozen=True):
    """The end of a worker's log."""

    content: bytes
    full_size: int


class TrainingJobClient:
    """Requests to one ModelArts; credentials are read before every request, so that renewed ones are used."""

    def __init__(self, wanted: ModelArtsSettings, backoff: Backoff | None = None) -> None:
        if find_spec("huaweicloudsdkmodelarts") is None:
            raise UsageError("huaweicloudsdkmodelarts is not installed", hint="pip install 'paceline[modelarts]'")
        self._wanted = wanted
        self._backoff = backoff or _BACKOFF
        self._place: ModelArtsEndpoint | None = None
        self._client: Any = None

    def create(self, body: Any) -> CloudJob:
        """Not retried here: when the answer was lost, the job may have been created."""
        from huaweicloudsdkmodelarts.v1 import CreateTrainingJobRequest

        with self._waiting():
            return _job(
                self._request_once(lambda client: client.create_training_job(CreateTrainingJobRequest(body=body)))
            )

    def get(self, number: str) -> CloudJob:
        from huaweicloudsdkmodelarts.v1 import ShowTrainingJobDetailsRequest as Request

        return _job(self._request(lambda client: client.show_training_job_details(Request(training_job_id=number))))

    def find_by_name(self, name: str) -> list[CloudJob]:
        """Jobs with exactly this name: ModelArts itself searches for names that contain it."""
        return [job for job in self.search(name) if job.name == name]

    def search(self, name: str) -> list[CloudJob]:
        from huaweicloudsdkmodelarts.v1 import Filter, JobSearches, ListTrainingJobsRequest

        found: list[CloudJob] = []
        while True:
            body = JobSearches(
                offset=len(found),
                limit=_PAGE,
                sort_by="create_time",
                order="desc",
                filters=[Filter(key="name", operator="like", value=[name])],
            )
            request = ListTrainingJobsRequest(body=body)
            answer = self._request(partial(_search, request=request))
            page = [_job(item) for item in answer.items or ()]
            found += page
            if not page or len(found) >= (answer.total or 0):
                return found

    def stop(self, number: str) -> None:
        from huaweicloudsdkmodelarts.v1 import JobActionType, StopTrainingJobRequest

        request = StopTrainingJobRequest(training_job_id=number, body=JobActionType(action_type="terminate"))
        self._request(lambda client: client.stop_training_job(request))

    def log(self, number: str, task: str) -> LogPreview:
        from huaweicloudsdkmodelarts.v1 import ShowTrainingJobLogsPreviewRequest as Request

        request = Request(training_job_id=number, task_id=task)
        answer = self._request(lambda client: client.show_training_job_logs_preview(request))
        content = (answer.content or "").encode()
        return LogPreview(content, answer.full_size if answer.full_size is not None else len(content))

    def metrics(self, number: str, task: str) -> dict[str, list[float]]:
        """Name → values in percent, one per minute, as ModelArts' console plots them."""
        from huaweicloudsdkmodelarts.v1 import ShowTrainingJobMetricsRequest as Request

        request = Request(training_job_id=number, task_id=task)
        answer = self._request(lambda client: client.show_training_job_metrics(request))
        return {each.metric: [float(value) for value in each.value or ()] for each in answer.metrics or ()}

    def events(self, number: str) -> list[str]:
        """Newest first, as the console shows them."""
        from huaweicloudsdkmodelarts.v1 import ListTrainingJobEventsRequest as Request

        request = Request(training_job_id=number, limit=50, order="desc")
        answer = self._request(lambda client: client.list_training_job_events(request))
        return [f"{event.level}: {event.message}" for event in answer.events or ()]

    def flavors(self) -> list[OfferedFlavor]:
        from huaweicloudsdkmodelarts.v1 import ShowTrainingJobFlavorsRequest

        answer = self._request(lambda client: client.show_training_job_flavors(ShowTrainingJobFlavorsRequest()))
        return [
            OfferedFlavor(each.flavor_id, each.flavor_name or "", *_cards(each.flavor_info))
            for each in answer.flavors or ()
        ]

    def engines(self) -> list[FrameworkEngine]:
        from huaweicloudsdkmodelarts.v1 import ShowTrainingJobEnginesRequest

        answer = self._request(lambda client: client.show_training_job_engines(ShowTrainingJobEnginesRequest()))
        return [FrameworkEngine(name=each.engine_name, version=each.engine_version) for each in answer.items or ()]

    def pools(self) -> list[OfferedPool]:
        from huaweicloudsdkmodelarts.v1 import ListPoolsRequest

        answer = self._request(lambda client: client.list_pools(ListPoolsRequest()))
        return [_pool(each) for each in answer.items or ()]

    def _request(self, request: Callable[[Any], Any]) -> Any:
        with self._waiting():
            return retry_call(self._backoff, lambda: self._request_once(request))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Says whom it waits for; a host that does not answer is found before the SDK's own long timeouts."""
        place = find_endpoint(self._wanted)
        require_answer(place.endpoint, what="ModelArts", ca_file=place.access.ca_file or None)
        with waiting_for(f"ModelArts at {place.endpoint}"):
            yield

    def _request_once(self, request: Callable[[Any], Any]) -> Any:
        """Tries again when the credentials were renewed between reading and using them."""
        place = find_endpoint(self._wanted)
        try:
            return _with_our_errors(lambda: request(self._client_at(place)), place)
        except DeniedError:
            renewed = find_endpoint(self._wanted)
            if renewed == place:
                raise
            return _with_our_errors(lambda: request(self._client_at(renewed)), renewed)

    def _client_at(self, place: ModelArtsEndpoint) -> Any:
        if self._place != place:
            self._client, self._place = _client(place), place
        return self._client


def _search(client: Any, request: Any) -> Any:
    return client.list_training_jobs(request)


def _client(place: ModelArtsEndpoint) -> Any:
    from huaweicloudsdkcore.auth.credentials import BasicCredentials
    from huaweicloudsdkcore.http.http_config import HttpConfig
    from huaweicloudsdkmodelarts.v1 import ModelArtsClient

    # It prints every error itself otherwise, also those that a retry solves.
    logging.getLogger(f"HuaweiCloud-SDK-{ModelArtsClient.__name__}").disabled = True
    credentials = BasicCredentials(place.access.key.reveal(), place.access.secret.reveal(), place.project_id)
    if place.access.token:
        credentials = credentials.with_security_token(place.access.token.reveal())
    config = HttpConfig.get_default_config()
    config.timeout = _TIMEOUT
    config.ssl_ca_cert = place.access.ca_file or None
    builder = ModelArtsClient.new_builder().with_http_config(config).with_credentials(credentials)
    return builder.with_endpoint(place.endpoint).build()


def _with_our_errors(call: Callable[[], Any], place: ModelArtsEndpoint) -> Any:
    from huaweicloudsdkcore.exceptions.exceptions import SdkException, ServiceResponseException
    from requests.exceptions import RequestException

    try:
        return call()
    except ServiceResponseException as error:
        raise _refused(error, place) from None
    except (SdkException, RequestException) as error:
        reason = redact(str(getattr(error, "error_msg", None) or error))
        raise TransientError(
            f"could not connect to {place.endpoint} ({_short(reason)})", hint="paceline doctor checks the connection"
        ) from None


def _refused(error: Any, place: ModelArtsEndpoint) -> PacelineError:
    reason = redact(f"{error.error_msg or 'no reason given'} ({error.status_code}, {error.error_code or 'no code'})")
    text = f"ModelArts at {place.endpoint}: {reason}"
    if error.status_code in (401, 403):
        return DeniedError(
            text, hint=f"credentials from: {place.access.source}; temporary ones expire after a day at most"
        )
    if error.status_code == 404:
        return MissingError(text)
    if error.status_code == 429:
        return ThrottledError(text)
    if error.status_code >= 500:
        return TransientError(text)
    return StorageError(text)


def _job(answer: Any) -> CloudJob:
    status, metadata = answer.status, answer.metadata
    ended = {each.task: each for each in status.task_statuses or ()}
    names = dict.fromkeys([*(status.tasks or ()), *ended])
    started = status.start_time / 1000 if status.start_time else None
    duration = (status.duration or 0) / 1000
    return CloudJob(
        id=metadata.id,
        name=metadata.name,
        phase=status.phase or "",
        started=started,
        ended=started + duration if started and duration else None,
        tasks=tuple(_task(name, ended.get(name)) for name in names),
    )


def _cards(info: Any) -> tuple[int | None, str]:
    """Number and product of a flavor's NPUs or GPUs."""
    cards = getattr(info, "npu", None) or getattr(info, "gpu", None)
    return (cards.unit_num, cards.product_name or "") if cards else (None, "")


def _pool(item: Any) -> OfferedPool:
    """Pools are named by their metadata; the name that people gave is a label."""
    labels = getattr(item.metadata, "labels", None)
    shown = getattr(labels, "os_modelarts_name", None) or item.metadata.name
    return OfferedPool(item.metadata.name, shown, getattr(item.status, "phase", None) or "")


def _task(name: str, ended: Any) -> WorkerTask:
    if ended is None:
        return WorkerTask(name)
    return WorkerTask(name, ended.exit_code, redact(ended.message or ""))


def _short(reason: str) -> str:
    """Without the object addresses that urllib3 puts into its messages."""
    return re.sub(r"<[^>]*>:? ?", "", reason)[:300]
