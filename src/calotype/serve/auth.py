"""Authentication and authorization: which client a token belongs to, and what that client may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.serve.settings import ServeSettings

LOCAL = "local"
"""The client name where no API keys exist."""


class KeyCheck(Protocol):
    """The API keys of a deployment, which may change while it runs."""

    def all(self) -> Sequence[object]:
        """The valid keys."""
        ...

    def exist(self) -> bool:
        """Whether clients need a key. Stays true even if all keys are revoked or lost."""
        ...

    def problem(self) -> str | None:
        """Why the keys cannot be read now, and what holds until they can."""
        ...

    def check(self, token: str) -> str | None:
        """The client that a token belongs to; raises QueueFullError when its quota is used up."""
        ...


class UnknownClientError(CalotypeError):
    """No key, or an unknown one."""


class ForbiddenError(CalotypeError):
    """A known client, or an address, that may not make this request."""


@dataclass(frozen=True)
class Client:
    """An authenticated client."""

    name: str
    admin: bool

    @property
    def can_see(self) -> str | None:
        """The client whose jobs it may access: its own, or None for all."""
        return None if self.admin else self.name

    def acts_for(self, client: str | None) -> str:
        """The client whose files are meant: itself, or, for an admin, the one that it names."""
        if client and client != self.name:
            self.require_admin()
        return client or self.name

    def require_admin(self) -> None:
        """Raise ForbiddenError unless the client is an admin."""
        if not self.admin:
            raise ForbiddenError(f"{self.name!r} is no admin of this deployment; name it in `admins`")


class Access:
    """Authenticates clients by key; where no key was ever made, accepts anyone on this machine only.

    Revoking the last key keeps the deployment closed: it does not become open to everyone.
    """

    def __init__(self, settings: ServeSettings, keys: KeyCheck | None) -> None:
        if not settings.loopback_only and not (keys and keys.all()):
            rule = (
                f"{settings.host!r} can be reached from other machines, and no API key exists; make one, or "
                f"listen on 127.0.0.1"
            )
            raise RequestError([Problem("host", rule, settings.host)])
        self._keys = keys
        self._loopback_only = settings.loopback_only
        self._admins = frozenset(settings.admins)

    @property
    def has_keys(self) -> bool:
        """Whether clients need a key."""
        return bool(self._keys and self._keys.exist())

    @property
    def keys_problem(self) -> str | None:
        """Why the keys cannot be read now."""
        return self._keys.problem() if self._keys else None

    def caller(self, token: str | None) -> Client:
        """The client that a token belongs to; raises UnknownClientError."""
        if self._loopback_only and not self.has_keys:
            return Client(LOCAL, admin=True)
        name = self._keys.check(token) if self._keys and token else None
        if name is not None:
            return Client(name, admin=name in self._admins)
        if token:
            raise UnknownClientError("this API key is not known here")
        raise UnknownClientError(
            "an API key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
        )


class Session:
    """An authenticated client of a long response, during which its key may be revoked."""

    def __init__(self, access: Access, token: str | None) -> None:
        self.caller = access.caller(token)
        self._access, self._token = access, token

    def is_valid(self) -> bool:
        """Whether its token still authenticates the same client."""
        try:
            return self._access.caller(self._token) == self.caller
        except CalotypeError:
            return False


def bearer_token(header: str) -> str | None:
    """The token in an `Authorization` header."""
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
