"""Reading a repository: a bare mirror of its branches, and commits, changed paths and files out of it. git, as a child.

Everything that comes from a repository is a stranger's text: object ids are passed on stdin, names never become
options, objects are read by their stated length, and only the protocols that a project may use are open.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from backend.outgoing import AddressRefused, way_to
from backend.services.repository.commit_object import CommitObject, parse_commit

SSH = "ssh -oBatchMode=yes -oConnectTimeout=15"
STALE_LOCK_S = 60
LOOK_UP_S = 0.25  # how often a running git is looked after
MAX_PATHS = 5_000
MORE_PATHS = "…"
"""The last of a list of changed paths that does not name them all: what else changed may be anything."""
MAX_MEMORY_BYTES = 512 << 20  # of git, for listing what commits changed: some two million files; and for tags
MAX_COMMIT_BYTES = 1 << 20  # of a commit's own text; with more of it, git stores what nobody will read
MAX_READ_BYTES = 32 << 20  # of objects at a time
MAX_PARENTS = 100
MAX_BRANCHES = 200
MAX_TAG_NAME = 200
MAX_PULL_REQUEST = 250  # commits of a pull request that are looked at: as many as GitHub shows
OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
# A parent process may be a git hook; its repository is not ours.
INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_NAMESPACE")
BROKEN = ("not a git repository", "bad object", "object file", "loose object", "packfile", "index-pack failed")


class GitFailure(Exception):
    """git could not do it. The message is one line, without credentials."""


class TooMuch(GitFailure):
    """It takes more memory than git may have: a few trees that name one another make billions of files."""


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int


class Mirror:
    """The branches of one repository, in a bare repository of ours."""

    def __init__(
        self,
        path: Path,
        url: str,
        *,
        trusted: bool,
        timeout_s: int,
        is_stopping: Callable[[], bool] = lambda: False,
        private_hosts: Sequence[str] = (),
    ) -> None:
        self.path = path
        self._private_hosts = private_hosts
        self._is_stopping = is_stopping
        self.url = url
        self.timeout_s = timeout_s
        self._environment = _environment(url, trusted=trusted)

    def exists(self) -> bool:
        return (self.path / "HEAD").is_file()

    def fetch(self) -> None:
        """Update every branch, including forced and deleted ones. A broken mirror is created again."""
        self._initialise()
        self._remove_stale_locks()
        try:
            self._fetch()
        except GitFailure as failure:
            if not any(sign in str(failure) for sign in BROKEN):
                raise
            shutil.rmtree(self.path, ignore_errors=True)
            self._initialise()
            self._fetch()

    def _fetch(self) -> None:
        self._fetch_refs("--prune", "origin", "+refs/heads/*:refs/heads/*")

    def fetch_pull_request(self, number: int) -> None:
        """Bring the head of a pull request, forced ones too."""
        self._fetch_refs("origin", f"+refs/pull/{int(number)}/head:refs/tidemark/pull/{int(number)}")

    def commits_off(self, sha: str, branch: str) -> list[str]:
        """The commit and its first parents that are not on the branch, newest first; at least itself."""
        count, off = f"--max-count={MAX_PULL_REQUEST}", f"^refs/heads/{branch}"
        found = _text(self._git("rev-list", "--first-parent", count, _checked(sha), off, "--")).split()
        return found or [sha]

    def merged_side(self, merge: str) -> tuple[str, list[str]]:
        """Where the side that a merge brought in began, and its commits along first parents, oldest first."""
        merge = _checked(merge)
        base = _text(self._git("merge-base", f"{merge}^1", f"{merge}^2")).strip()
        side = _text(self._git("rev-list", "--first-parent", "--reverse", f"{merge}^2", f"^{merge}^1", "--")).split()
        return base, side

    def _initialise(self) -> None:
        private_directory(self.path.parent)
        private_directory(self.path)
        if not self.exists():
            self._git("init", "--quiet", "--bare", ".")

    def _remove_stale_locks(self) -> None:
        """A killed git leaves lock files; housekeeping runs once at a time, so old ones belong to nobody."""
        oldest = time.time() - max(STALE_LOCK_S, self.timeout_s)
        for lock in self.path.rglob("*.lock"):
            with contextlib.suppress(OSError):
                if lock.stat().st_mtime < oldest:
                    lock.unlink()

    def heads(self) -> dict[str, str]:
        """Branch -> the commit it points at; the most recently changed first."""
        output = self._git(
            "for-each-ref", "--sort=-committerdate", "--format=%(objectname) %(refname:strip=2)", "refs/heads"
        )
        lines = (line.split(" ", 1) for line in _lines(output))
        return {name: sha for sha, name in lines}

    def tags(self) -> dict[str, str]:
        """Tag -> what it points at, as the origin has them now. Only asked: a tag's commits may be on no branch."""
        listed: dict[str, str] = {}
        for line in _lines(self._ask_origin("ls-remote", "--quiet", "--tags", "origin", memory_bytes=MAX_MEMORY_BYTES)):
            sha, _, reference = line.partition("\t")
            # An annotated tag is listed twice, the second time with what it points at.
            listed[reference.removeprefix("refs/tags/").removesuffix("^{}")] = sha
        return {name: sha for name, sha in listed.items() if len(name) <= MAX_TAG_NAME}

    def first_parents(self, sha: str, limit: int | None = None) -> list[str]:
        """The commit, its first parent, that one's first parent … newest first."""
        count = () if limit is None else (f"--max-count={limit}",)
        return _text(self._git("rev-list", "--first-parent", *count, _checked(sha), "--")).split()

    def commits(self, shas: Sequence[str]) -> list[CommitObject]:
        """These commits with what each changed against its first parent, in the same order."""
        objects = self._commit_objects(shas)
        heads = [parse_commit(sha, objects[sha]) for sha in shas]
        paths = self._changed_paths(heads)
        return [
            CommitObject(
                sha=head.sha,
                parents=head.parents,
                message=head.message,
                author_name=head.author_name,
                author_email=head.author_email,
                authored_at=head.authored_at,
                committed_at=head.committed_at,
                changed_paths=paths[head.sha],
            )
            for head in heads
        ]

    def _commit_objects(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Commits as they are stored, some at a time; of one that is too large to be read, only where it stands."""
        sizes = self._sizes(shas)
        found: dict[str, bytes] = {}
        for some in _up_to(MAX_READ_BYTES, {sha: sizes[sha] for sha in shas if sizes[sha] <= MAX_COMMIT_BYTES}):
            found |= zip(some, self._objects(some), strict=True)
        for sha in shas:
            if sizes[sha] > MAX_COMMIT_BYTES:
                asked = self._git("rev-list", "--no-walk", "--parents", sha, "--", memory_bytes=MAX_MEMORY_BYTES)
                parents = "".join(f"parent {parent}\n" for parent in _text(asked).split()[1 : 1 + MAX_PARENTS])
                found[sha] = f"{parents}\n(a commit of {sizes[sha]} bytes, which is not read)".encode()
        return found

    def _sizes(self, names: Sequence[str]) -> dict[str, int]:
        """How many bytes these objects have."""
        asked = "".join(f"{_checked(name)}\n" for name in names).encode()
        lines = _lines(self._git("cat-file", "--batch-check", stdin=asked))
        return {name: _size_in(name, line.split()) for name, line in zip(names, lines, strict=True)}

    def _objects(self, names: Sequence[str]) -> Iterator[bytes]:
        """Their content; of objects whose size is known to be bearable."""
        output = self._git("cat-file", "--batch", stdin="".join(f"{_checked(name)}\n" for name in names).encode())
        at = 0
        for name in names:
            end = output.index(b"\n", at)
            size = _size_in(name, _text(output[at:end]).split())
            yield output[end + 1 : end + 1 + size]
            at = end + 1 + size + 1

    def _changed_paths(self, heads: Sequence[CommitObject]) -> dict[str, tuple[str, ...]]:
        """Both names of a renamed file, and the name of a submodule. What cannot be listed is `MORE_PATHS`."""
        try:
            return self._listed_paths(heads)
        except TooMuch:
            if len(heads) == 1:
                return {heads[0].sha: (MORE_PATHS,)}
            half = len(heads) // 2
            return {**self._changed_paths(heads[:half]), **self._changed_paths(heads[half:])}

    def _listed_paths(self, heads: Sequence[CommitObject]) -> dict[str, tuple[str, ...]]:
        """The answers come in the order asked: a commit's id, then of each file what it was and is, and its name."""
        asked = "".join(" ".join((head.sha, *head.parents[:1])) + "\n" for head in heads)
        output = self._git(
            "diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--abbrev=1", "--no-renames", "--always",
            stdin=asked.encode(), memory_bytes=MAX_MEMORY_BYTES,
        )  # fmt: skip
        found: dict[str, list[str]] = {head.sha: [] for head in heads}
        pieces = iter(output.split(b"\0"))
        paths: list[str] = []
        for piece in pieces:
            if not piece.startswith(b":"):
                paths = found.get(piece.decode("ascii", "replace").strip("\n"), [])
            elif len(paths) < MAX_PATHS:
                paths.append(next(pieces).decode("utf-8", "replace"))
            else:
                paths[MAX_PATHS:] = [MORE_PATHS]
                next(pieces)
        return {sha: tuple(paths) for sha, paths in found.items()}

    def has_commit(self, sha: str) -> bool:
        """Whether a branch, or a pull request that was let in, has brought this commit."""
        said = self._git("cat-file", "--batch-check", stdin=f"{_checked(sha)}^{{commit}}\n".encode())
        return len(said.split()) == 3 and said.split()[1] == b"commit"

    def is_on_branch(self, sha: str) -> bool:
        """Whether a branch leads to this commit: someone who may write to the repository put it there."""
        if sha in self.heads().values():
            return True
        if not self.has_commit(sha):
            return False
        return bool(self._git("for-each-ref", "--count=1", f"--contains={_checked(sha)}", "refs/heads"))

    def blobs_at(self, shas: Sequence[str], path: str) -> dict[str, Blob | None]:
        """The file of this name in each commit. None: it has none."""
        asked = "".join(f"{_checked(sha)}:{path}\n" for sha in shas).encode()
        lines = _lines(self._git("cat-file", "--batch-check", stdin=asked))
        found: dict[str, Blob | None] = {}
        for sha, line in zip(shas, lines, strict=True):
            parts = line.split(" ")
            is_blob = len(parts) == 3 and parts[1] == "blob"
            found[sha] = Blob(parts[0], int(parts[2])) if is_blob else None
        return found

    def read_blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        return dict(zip(ids, self._objects(ids), strict=True)) if ids else {}

    def _fetch_refs(self, *arguments: str) -> None:
        self._ask_origin("fetch", "--force", "--no-tags", "--quiet", "--no-write-fetch-head", *arguments)

    def _ask_origin(self, verb: str, *arguments: str, memory_bytes: int | None = None) -> bytes:
        """The one way to the network: to the repository's own address, if that may be reached."""
        try:
            way = way_to(self.url, self._private_hosts)
        except AddressRefused as refused:
            raise GitFailure(f"git {verb}: {refused}") from None
        environment = {"GIT_SSH_COMMAND": way.ssh_command(SSH)}
        return self._git(*way.options(), verb, *arguments, memory_bytes=memory_bytes, environment=environment)

    def _git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        memory_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> bytes:
        command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.autoDetach=false", *arguments]
        try:
            child = subprocess.Popen(
                command,
                cwd=self.path,
                env={**self._environment, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that its helpers (ssh, git-remote-https) can be ended with it
            )
        except FileNotFoundError:
            raise GitFailure("git is not installed (or the mirror's directory is gone)") from None
        with child:
            if memory_bytes is not None:
                limit_memory(child.pid, memory_bytes)
            verb = next(word for word in arguments if not word.startswith("-") and "=" not in word)
            stdout, stderr = self._output_of(child, verb, stdin)
        if child.returncode != 0 and memory_bytes is not None and b"memory" in stderr.lower():
            raise TooMuch(self._reason(verb, stderr))
        if child.returncode != 0:
            raise GitFailure(self._reason(verb, stderr) or f"git {verb} failed")
        return stdout

    def _output_of(self, child: subprocess.Popen[bytes], verb: str, stdin: bytes) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + self.timeout_s
        given: bytes | None = stdin
        while True:
            try:
                return child.communicate(given, timeout=LOOK_UP_S)
            except subprocess.TimeoutExpired:
                given = None
            if self._is_stopping() or time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                why = "was stopped" if self._is_stopping() else f"took more than {self.timeout_s} s"
                raise GitFailure(f"git {verb} {why}")

    def _reason(self, verb: str, stderr: bytes) -> str:
        lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:", "remote:"))] or lines
        reason = f"git {verb}: " + "; ".join(told)
        return reason.replace(self.url, without_credentials(self.url)).replace("\x00", "\ufffd")[:500]


def limit_memory(pid: int, limit_bytes: int) -> None:
    """How much a process may have for itself (Linux); files that it maps do not count."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def private_directory(path: Path) -> None:
    """The directory, closed to every other user: the history of a private project lies in it. One that an earlier
    version left open is closed."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def without_credentials(url: str) -> str:
    """`url` as it may be shown."""
    split = urlsplit(url)
    if "@" not in split.netloc:
        return url
    return urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2]))


def _environment(url: str, *, trusted: bool) -> Mapping[str, str]:
    # git and ssh need the process's own environment (PATH, HOME, proxies, ssh agent); nothing is read from it here.
    inherited = {name: value for name, value in os.environ.items() if name not in INHERITED}
    return {
        **inherited,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": SSH,
        "GIT_ALLOW_PROTOCOL": "https:ssh:file" if trusted else "https:ssh",
        # The URL may hold a token: in the environment it is in nobody's process list and on no disk.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.url",
        "GIT_CONFIG_VALUE_0": url,
    }


def _checked(sha: str) -> str:
    if not OBJECT_ID.match(sha):
        raise GitFailure(f"{sha[:80]!r} is not an object id")
    return sha


def _size_in(name: str, said: Sequence[str]) -> int:
    """The size of an object in what git says of it: its id, kind, and bytes."""
    if len(said) != 3:
        raise GitFailure(f"object {name} is missing from the mirror: bad object")
    return int(said[2])


def _up_to(most: int, sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Names in groups that have at most so many bytes together, or one name."""
    group: list[str] = []
    for name, size in sizes.items():
        if group and sum(sizes[each] for each in group) + size > most:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _lines(output: bytes) -> list[str]:
    """Only a newline ends a line: the name of a branch may hold what Python also takes for the end of one."""
    return [line for line in _text(output).split("\n") if line]


def batches(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[at : at + size] for at in range(0, len(items), size))
