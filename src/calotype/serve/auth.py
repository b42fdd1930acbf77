"""Who asks, and what they may do. Knows nothing of how keys are kept or how a token travels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.serve.settings import ServeSettings

LOCAL = "local"
"""The client's name where no keys exist."""


class KeyCheck(Protocol):
    """The API keys of a deployment, which may change while it runs."""

    def all(self) -> Sequence[object]:
        """The keys that let somebody in."""
        ...

    def exist(self) -> bool:
        """Whether clients need a key. Once it is so it stays so, even if all keys are revoked or lost."""
        ...

    def problem(self) -> str | None:
        """Why the kept keys cannot be read now, and what holds until they can."""
        ...

    def check(self, token: str) -> str | None:
        """The name of the client a token belongs to; raises QueueFullError when its quota is used up."""
        ...


class UnknownClientError(CalotypeError):
    """No key, or one that is not known."""


class ForbiddenError(CalotypeError):
    """Somebody known, or somewhere, from where this may not be asked."""


@dataclass(frozen=True)
class Client:
    """A client that was let in."""

    name: str
    admin: bool

    @property
    def can_see(self) -> str | None:
        """Whose jobs it may touch: its own, or everybody's."""
        return None if self.admin else self.name

    def acts_for(self, client: str | None) -> str:
        """The client whose files are meant: itself, or, for an admin, the one that it names."""
        if client and client != self.name:
            self.require_admin()
        return client or self.name

    def require_admin(self) -> None:
        """Refuse what only an admin may do."""
        if not self.admin:
            raise ForbiddenError(f"{self.name!r} is no admin of this deployment; name it in `admins`")


class Access:
    """Lets clients in by their key; where none was made, anybody on this machine and nobody else.

    Who revokes the last key wants to let somebody in no more, not everybody from then on.
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
        """Whether anybody needs one."""
        return bool(self._keys and self._keys.exist())

    @property
    def keys_problem(self) -> str | None:
        """Why the kept keys cannot be read now."""
        return self._keys.problem() if self._keys else None

    def caller(self, token: str | None) -> Client:
        """The client with this token."""
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
    """A client that was let in, for answers that go on for so long that its key may be revoked meanwhile."""

    def __init__(self, access: Access, token: str | None) -> None:
        self.caller = access.caller(token)
        self._access, self._token = access, token

    def is_valid(self) -> bool:
        """Whether it would be let in again, as the same."""
        try:
            return self._access.caller(self._token) == self.caller
        except CalotypeError:
            return False


def bearer_token(header: str) -> str | None:
    """The token in an `Authorization` header."""
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
