"""Namespaces of a command: its own mounts, network, and shared memory. Linux; the standard library only.

`furnish` is for root, whose commands run as another user: closed directories contain only what the command needs,
and the world-writable places (/tmp, /dev/shm) are empty and its own. `build` is for an ordinary user, whose
commands run under the same user id: a whole new root with nothing in it but the system's programs, read-only, and what
the command needs; with separate process ids, so that it can neither see nor signal anything outside.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
MOUNT_SETATTR, AT_RECURSIVE = 442, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/sys")
DEVICES = ("null", "zero", "full", "random", "urandom")
GPUS = ("nvidia", "dri", "kfd", "infiniband")
SCRATCH = ("/tmp", "/var/tmp", "/run/lock", "/dev/mqueue")

# {directory: {what is needed in there: may it be written}}
View = Mapping[str, Mapping[str, bool]]


def furnish(view: View, own: Mapping[str, Any] | None) -> None:
    """Moves this process, which is root, into its own mounts (and, with `own`, its own network and shared memory).

    `view` says what closed directories still contain; the rest of them is absent. Those named in
    `own["scratch"]` may be written, and are otherwise empty."""
    own_network = own is not None and not own["network"]
    unshare(CLONE_NEWNS | (CLONE_NEWIPC if own else 0) | (CLONE_NEWNET if own_network else 0))
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    scratch = frozenset(own["scratch"]) if own else frozenset()
    for closed, needed in view.items():
        _cover(closed, needed, free=closed in scratch)
    if own:
        _shared_memory(own["shared_memory_bytes"])
    if own_network:
        loopback_up()


def _cover(closed: str, needed: Mapping[str, bool], *, free: bool) -> None:
    handles = {path: os.open(path, os.O_PATH) for path in needed}
    # What is written to /tmp is kept in memory.
    mount("tmpfs", closed, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=1g" if free else "mode=755,size=1m")
    for path, handle in sorted(handles.items()):
        os.makedirs(path, mode=0o755, exist_ok=True)
        _bind(handle, path, MS_BIND, writable=needed[path])
        os.close(handle)
    if not free:
        mount("none", closed, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=755,size=1m")


def _bind(handle: int, target: str, how: int, *, writable: bool) -> None:
    mount(f"/proc/self/fd/{handle}", target, None, how)
    flags = 0 if writable else MS_RDONLY
    mount("none", target, None, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | flags)


def _shared_memory(size: int) -> None:
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={size}")


# --- for an ordinary user --------------------------------------------------------------------------------------------


def become_stranger(*, network: bool) -> None:
    """New namespaces of users, processes, IPC and, unless it may be reached, network. The next child is the first
    process in them."""
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | (0 if network else CLONE_NEWNET))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    if not network:
        loopback_up()


def build(own: Mapping[str, Any]) -> None:
    """A new root for this process, the first of its namespaces: the system read-only, what is needed, nothing else."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    handles = _opened([path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)])
    links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
    needed = {path: os.open(path, os.O_PATH) for path in own["needed"]}
    devices = _opened(f"/dev/{name}" for name in os.listdir("/dev") if name in DEVICES or name.startswith(GPUS))
    root = "/tmp"
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1g")
    for path, handle in handles.items():
        os.makedirs(root + path)
        mount(f"/proc/self/fd/{handle}", root + path, None, MS_BIND | MS_REC)
        read_only(root + path)
    for path, target in links.items():
        os.symlink(target, root + path)
    for name in ("dev/shm", "proc", "tmp", "var/tmp", "run"):
        os.makedirs(f"{root}/{name}")
    for path, handle in devices.items():
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            os.makedirs(root + path)
        else:
            os.close(os.open(root + path, os.O_CREAT | os.O_WRONLY, 0o600))
        mount(f"/proc/self/fd/{handle}", root + path, None, MS_BIND | MS_REC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("tmpfs", root + "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={own['shared_memory_bytes']}")
    for place in ("/tmp", "/var/tmp"):
        mount("tmpfs", root + place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=1g")
    for path, handle in sorted(needed.items()):
        os.makedirs(root + path, mode=0o755, exist_ok=True)
        mount(f"/proc/self/fd/{handle}", root + path, None, MS_BIND | MS_REC)
        if not own["needed"][path]:
            read_only(root + path)
    for handle in (*handles.values(), *devices.values(), *needed.values()):
        os.close(handle)
    os.chdir(root)
    _check(libc().pivot_root(b".", b"."), "a new root was refused")
    _check(libc().umount2(b".", MNT_DETACH), "the old root could not be left")
    os.chdir("/")
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _opened(paths: Iterable[str]) -> dict[str, int]:
    return {path: os.open(path, os.O_PATH) for path in paths}


def read_only(path: str) -> None:
    """The mount and all below it, which an ordinary user can change in no other way."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = libc().syscall(MOUNT_SETATTR, -100, path.encode(), AT_RECURSIVE, attributes, len(attributes))
    _check(result, f"{path} could not be made read-only")


# --- the kernel's calls ----------------------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    _check(libc().unshare(flags), "namespaces of its own were refused")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    result = libc().mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode())
    _check(result, f"mounting over {target} failed")


def loopback_up() -> None:
    """A new network has nothing but a loopback device, and that is down: ranks meet there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def on_linux() -> bool:
    return platform.system() == "Linux"
