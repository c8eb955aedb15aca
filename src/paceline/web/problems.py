"""Errors of the server: an HTTP status, and a text in both languages (`server.KEY` of the catalogue, with its hint)."""

from __future__ import annotations

from starlette.requests import Request

from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import Language, catalogue, text


class ServerError(PacelineError):
    """An error whose text is `server.KEY`; its hint, where there is one, is `server.KEY.hint`."""

    status = 500

    def __init__(self, key: str, **values: object) -> None:
        self.key, self.values = key, values
        super().__init__(self.message("en"), hint=self.hint_in("en"))

    def message(self, language: Language) -> str:
        return text(f"server.{self.key}", language, **self.values)

    def hint_in(self, language: Language) -> str | None:
        key = f"server.{self.key}.hint"
        return text(key, language, **self.values) if key in catalogue("server") else None


class BadRequestError(ServerError):
    """The parameters are well-formed but ask for something impossible."""

    status = 400


class NotFoundError(ServerError):
    """No such run, table or rank."""

    status = 404


class GoneError(ServerError):
    """The files of a run were moved or deleted."""

    status = 410


class ClientGoneError(ServerError):
    """The client closed the connection before the answer was ready."""

    status = 499


class BusyError(ServerError):
    """Too many requests are waiting."""

    status = 503


class TooLongError(ServerError):
    """The request was stopped because it took too long."""

    status = 504


def status_of(error: PacelineError) -> int:
    if isinstance(error, ServerError):
        return error.status
    return 400 if isinstance(error, UsageError) else 500


def requested_language(request: Request) -> Language:
    """`lang` of the address, else the first language the client accepts, else English."""
    asked = request.query_params.get("lang") or request.headers.get("accept-language", "")
    return "zh" if asked.startswith("zh") else "en"
