"""The table of system calls: every one that takes a path or a descriptor, and its treatment.

Pure data, up to Linux 6.18; the filter, the decoder and the performer interpret it.  A row is a name, the
family (what the op will be called), the treatment, when it stops, and its arguments in the language of
`racecheck.kernel.signature`.  The remaining calls of the kernel are in `UNTOUCHED`, each with the reason:
none is left out by oversight, and a test holds that against the kernel's headers.  A call whose number
is above `HIGHEST` is newer than the table: the filter must stop it.

PERFORM  is for whatever can be done in a rank's place, on a duplicate of its descriptor or from its
         directory: then the result is known and the op is atomic.

CONTINUE is for what only the rank can do to itself (close, dup, chdir, exec, clone, mmap), for what waits
         for pipes (splice), for arguments that hold pointers of the rank (setxattrat, io_submit), and for
         what changes nothing that another rank could see (fadvise).  The result of such an op is not known.

REFUSE   is only for what would take a rank out of control, and with an errno that programs must expect:

         * mount, chroot, setns and their kin give paths a meaning that the supervisor does not share.
           They need a privilege, and EPERM is what a program without it gets.
         * open_by_handle_at and fanotify give descriptors of files that no path led to.  EPERM, as above.
         * Landlock restricts the rank but not the supervisor, which would then do what the rank may not.
           EOPNOTSUPP is what a kernel that was started without it says.
         * io_uring does its work in the kernel, where no filter sees it.  ENOSYS is what an old kernel says.
         * Keys of the kernel belong to the user and outlive a run.  ENOSYS is what a kernel without them says.

         Privileged calls that do none of this (swapon, acct, quotactl) continue.

What the table cannot see: a descriptor of a watched file that arrives from another process (SCM_RIGHTS,
pidfd_getfd) has a number below the supervisor's range.  The numbers of aarch64 are those of the kernel's header, but
no rank has run there: it is untested.
"""

from __future__ import annotations

from collections.abc import Mapping

from racecheck.kernel.flags import FLAGS, flag_names
from racecheck.kernel.ignored import UNTOUCHED
from racecheck.kernel.numbers import NUMBERS
from racecheck.kernel.signature import SIZES, Arg, Call, Notify, Role, Treatment, parse
from racecheck.model.errors import CannotRun, InternalError

__all__ = [
    "FLAGS", "HIGHEST", "SIZES", "TABLE", "UNTOUCHED",
    "Arg", "Call", "Notify", "Role", "Treatment", "calls", "flag_names", "number",
]  # fmt: skip


def _row(name: str, family: str, treatment: Treatment, notify: Notify, signature: str, *, errno: str = "") -> Call:
    return Call(name, family, treatment, notify, parse(signature), errno)


def _table(*rows: Call) -> Mapping[str, Call]:
    table = {row.name: row for row in rows}
    if len(table) < len(rows):
        raise InternalError("two rows for one system call")
    return table


PERFORM, CONTINUE, REFUSE = Treatment.PERFORM, Treatment.CONTINUE, Treatment.REFUSE
ALWAYS, DESCRIPTOR, CLOCK, LOCK, MESSAGE, NAMED, WAIT, LIMITED = (
    Notify.ALWAYS, Notify.DESCRIPTOR, Notify.CLOCK, Notify.LOCK, Notify.MESSAGE, Notify.NAMED, Notify.WAIT,
    Notify.LIMITED,
)  # fmt: skip

TABLE: Mapping[str, Call] = _table(
    # Open and close files.
    _row("open", "open", PERFORM, ALWAYS, "path flags:open int:mode"),
    _row("creat", "open", PERFORM, ALWAYS, "path int:mode"),
    _row("openat", "open", PERFORM, ALWAYS, "dirfd path flags:open int:mode"),
    _row("openat2", "open", PERFORM, ALWAYS, "dirfd path how:3 long:size"),
    _row("close", "close", CONTINUE, DESCRIPTOR, "fd"),
    _row("close_range", "close", CONTINUE, ALWAYS, "int:first int:last flags:close_range"),
    _row("dup", "dup", CONTINUE, DESCRIPTOR, "fd"),
    _row("dup2", "dup", CONTINUE, DESCRIPTOR, "fd:from fd:to"),
    _row("dup3", "dup", CONTINUE, DESCRIPTOR, "fd:from fd:to flags:cloexec"),
    _row("pidfd_getfd", "dup", CONTINUE, ALWAYS, "- int:descriptor -"),
    _row("fcntl", "fcntl", CONTINUE, LOCK, "fd flags:fcntl -"),
    _row("ioctl", "ioctl", CONTINUE, DESCRIPTOR, "fd int:request -"),
    _row("flock", "flock", PERFORM, ALWAYS, "fd flags:flock"),
    # Read and write them.
    _row("read", "read", PERFORM, DESCRIPTOR, "fd outbuf:2 long:length"),
    _row("pread64", "read", PERFORM, DESCRIPTOR, "fd outbuf:2 long:length long:offset"),
    _row("readv", "read", PERFORM, DESCRIPTOR, "fd outiov:2 long:count"),
    _row("preadv", "read", PERFORM, DESCRIPTOR, "fd outiov:2 long:count long:offset -"),
    _row("preadv2", "read", PERFORM, DESCRIPTOR, "fd outiov:2 long:count long:offset - flags:rwf"),
    _row("write", "write", PERFORM, DESCRIPTOR, "fd inbuf:2 long:length"),
    _row("pwrite64", "write", PERFORM, DESCRIPTOR, "fd inbuf:2 long:length long:offset"),
    _row("writev", "write", PERFORM, DESCRIPTOR, "fd iniov:2 long:count"),
    _row("pwritev", "write", PERFORM, DESCRIPTOR, "fd iniov:2 long:count long:offset -"),
    _row("pwritev2", "write", PERFORM, DESCRIPTOR, "fd iniov:2 long:count long:offset - flags:rwf"),
    _row("lseek", "seek", PERFORM, DESCRIPTOR, "fd long:offset flags:seek"),
    _row("truncate", "truncate", PERFORM, ALWAYS, "path long:length"),
    _row("ftruncate", "truncate", PERFORM, DESCRIPTOR, "fd long:length"),
    _row("fallocate", "allocate", PERFORM, DESCRIPTOR, "fd flags:fallocate long:offset long:length"),
    _row("copy_file_range", "copy", PERFORM, DESCRIPTOR,
         "fd:from inout:offset fd:to inout:offset long:length int:flags"),
    _row("sendfile", "copy", PERFORM, DESCRIPTOR, "fd:to fd:from inout:offset long:length"),
    _row("splice", "copy", CONTINUE, DESCRIPTOR,
         "fd:from inout:offset fd:to inout:offset long:length flags:splice"),
    _row("tee", "copy", CONTINUE, DESCRIPTOR, "fd:from fd:to long:length flags:splice"),
    _row("vmsplice", "copy", CONTINUE, DESCRIPTOR, "fd - long:count flags:splice"),
    _row("mmap", "mmap", CONTINUE, DESCRIPTOR, "- long:length flags:prot flags:mmap fd long:offset"),
    _row("fadvise64", "advise", CONTINUE, DESCRIPTOR, "fd long:offset long:length flags:fadvise"),
    _row("readahead", "advise", CONTINUE, DESCRIPTOR, "fd long:offset long:length"),
    _row("cachestat", "advise", CONTINUE, DESCRIPTOR, "fd - - int:flags"),
    _row("io_submit", "submit", CONTINUE, ALWAYS, "- long:count -"),
    _row("io_uring_setup", "submit", REFUSE, ALWAYS, "int:entries -", errno="ENOSYS"),
    _row("io_uring_enter", "submit", REFUSE, ALWAYS, "- int:count - - - -", errno="ENOSYS"),
    _row("io_uring_register", "submit", REFUSE, ALWAYS, "- int:operation - -", errno="ENOSYS"),
    # Make them durable.
    _row("fsync", "fsync", PERFORM, DESCRIPTOR, "fd"),
    _row("fdatasync", "fsync", PERFORM, DESCRIPTOR, "fd"),
    _row("sync_file_range", "fsync", PERFORM, DESCRIPTOR, "fd long:offset long:length flags:sync_file_range"),
    _row("syncfs", "sync", PERFORM, DESCRIPTOR, "fd"),
    _row("sync", "sync", CONTINUE, ALWAYS, ""),
    # Read and set what is known about them.
    _row("stat", "stat", PERFORM, ALWAYS, "path out:stat"),
    _row("lstat", "stat", PERFORM, ALWAYS, "link out:stat"),
    _row("fstat", "stat", PERFORM, DESCRIPTOR, "fd out:stat"),
    _row("newfstatat", "stat", PERFORM, ALWAYS, "dirfd path out:stat flags:at"),
    _row("statx", "stat", PERFORM, ALWAYS, "dirfd path flags:statx int:mask out:statx"),
    _row("file_getattr", "stat", PERFORM, ALWAYS, "dirfd path outbuf:3 long:size flags:at"),
    _row("statfs", "statfs", PERFORM, ALWAYS, "path out:statfs"),
    _row("fstatfs", "statfs", PERFORM, DESCRIPTOR, "fd out:statfs"),
    _row("access", "access", PERFORM, ALWAYS, "path flags:access"),
    _row("faccessat", "access", PERFORM, ALWAYS, "dirfd path flags:access"),
    _row("faccessat2", "access", PERFORM, ALWAYS, "dirfd path flags:access flags:faccess"),
    _row("chmod", "chmod", PERFORM, ALWAYS, "path int:mode"),
    _row("fchmod", "chmod", PERFORM, DESCRIPTOR, "fd int:mode"),
    _row("fchmodat", "chmod", PERFORM, ALWAYS, "dirfd path int:mode"),
    _row("fchmodat2", "chmod", PERFORM, ALWAYS, "dirfd path int:mode flags:at"),
    _row("file_setattr", "chmod", PERFORM, ALWAYS, "dirfd path inbuf:3 long:size flags:at"),
    _row("chown", "chown", PERFORM, ALWAYS, "path int:uid int:gid"),
    _row("lchown", "chown", PERFORM, ALWAYS, "link int:uid int:gid"),
    _row("fchown", "chown", PERFORM, DESCRIPTOR, "fd int:uid int:gid"),
    _row("fchownat", "chown", PERFORM, ALWAYS, "dirfd path int:uid int:gid flags:at"),
    _row("utime", "utime", PERFORM, ALWAYS, "path in:utimbuf"),
    _row("utimes", "utime", PERFORM, ALWAYS, "path in:timevals"),
    _row("futimesat", "utime", PERFORM, ALWAYS, "dirfd path in:timevals"),
    _row("utimensat", "utime", PERFORM, ALWAYS, "dirfd path in:timespecs flags:at"),
    _row("getxattr", "getxattr", PERFORM, ALWAYS, "path string outbuf:3 long:length"),
    _row("lgetxattr", "getxattr", PERFORM, ALWAYS, "link string outbuf:3 long:length"),
    _row("fgetxattr", "getxattr", PERFORM, DESCRIPTOR, "fd string outbuf:3 long:length"),
    _row("getxattrat", "getxattr", CONTINUE, ALWAYS, "dirfd path flags:at string - -"),
    _row("setxattr", "setxattr", PERFORM, ALWAYS, "path string inbuf:3 long:length flags:xattr"),
    _row("lsetxattr", "setxattr", PERFORM, ALWAYS, "link string inbuf:3 long:length flags:xattr"),
    _row("fsetxattr", "setxattr", PERFORM, DESCRIPTOR, "fd string inbuf:3 long:length flags:xattr"),
    _row("setxattrat", "setxattr", CONTINUE, ALWAYS, "dirfd path flags:at string - -"),
    _row("listxattr", "listxattr", PERFORM, ALWAYS, "path outbuf:2 long:length"),
    _row("llistxattr", "listxattr", PERFORM, ALWAYS, "link outbuf:2 long:length"),
    _row("flistxattr", "listxattr", PERFORM, DESCRIPTOR, "fd outbuf:2 long:length"),
    _row("listxattrat", "listxattr", PERFORM, ALWAYS, "dirfd path flags:at outbuf:4 long:length"),
    _row("removexattr", "removexattr", PERFORM, ALWAYS, "path string"),
    _row("lremovexattr", "removexattr", PERFORM, ALWAYS, "link string"),
    _row("fremovexattr", "removexattr", PERFORM, DESCRIPTOR, "fd string"),
    _row("removexattrat", "removexattr", PERFORM, ALWAYS, "dirfd path flags:at string"),
    # Names.
    _row("getdents", "list", PERFORM, DESCRIPTOR, "fd outbuf:2 int:length"),
    _row("getdents64", "list", PERFORM, DESCRIPTOR, "fd outbuf:2 int:length"),
    _row("mkdir", "mkdir", PERFORM, ALWAYS, "link int:mode"),
    _row("mkdirat", "mkdir", PERFORM, ALWAYS, "dirfd link int:mode"),
    _row("mknod", "mknod", PERFORM, ALWAYS, "link int:mode int:device"),
    _row("mknodat", "mknod", PERFORM, ALWAYS, "dirfd link int:mode int:device"),
    _row("rmdir", "rmdir", PERFORM, ALWAYS, "link"),
    _row("unlink", "unlink", PERFORM, ALWAYS, "link"),
    _row("unlinkat", "unlink", PERFORM, ALWAYS, "dirfd link flags:unlink"),
    _row("rename", "rename", PERFORM, ALWAYS, "link link"),
    _row("renameat", "rename", PERFORM, ALWAYS, "dirfd link dirfd link"),
    _row("renameat2", "rename", PERFORM, ALWAYS, "dirfd link dirfd link flags:rename"),
    _row("link", "link", PERFORM, ALWAYS, "link link"),
    _row("linkat", "link", PERFORM, ALWAYS, "dirfd link dirfd link flags:link"),
    _row("symlink", "symlink", PERFORM, ALWAYS, "target link"),
    _row("symlinkat", "symlink", PERFORM, ALWAYS, "target dirfd link"),
    _row("readlink", "readlink", PERFORM, ALWAYS, "link outbuf:2 int:length"),
    _row("readlinkat", "readlink", PERFORM, ALWAYS, "dirfd link outbuf:3 int:length"),
    _row("bind", "bind", CONTINUE, ALWAYS, "fd sockaddr:2 int:length"),
    _row("inotify_add_watch", "watch", CONTINUE, ALWAYS, "- path int:mask"),
    _row("fanotify_init", "watch", REFUSE, ALWAYS, "int:flags flags:open", errno="EPERM"),
    _row("fanotify_mark", "watch", CONTINUE, ALWAYS, "- int:flags long:mask dirfd path"),
    _row("name_to_handle_at", "handle", CONTINUE, ALWAYS, "dirfd link - - flags:handle"),
    _row("open_by_handle_at", "handle", REFUSE, ALWAYS, "fd - flags:open", errno="EPERM"),
    # The meaning of a path.
    _row("chdir", "chdir", CONTINUE, ALWAYS, "path"),
    _row("fchdir", "chdir", CONTINUE, ALWAYS, "fd"),
    _row("chroot", "mount", REFUSE, ALWAYS, "path", errno="EPERM"),
    _row("pivot_root", "mount", REFUSE, ALWAYS, "path path", errno="EPERM"),
    _row("setns", "mount", REFUSE, ALWAYS, "fd flags:clone", errno="EPERM"),
    _row("mount", "mount", REFUSE, ALWAYS, "path path string long:flags -", errno="EPERM"),
    _row("umount2", "mount", REFUSE, ALWAYS, "path int:flags", errno="EPERM"),
    _row("open_tree", "mount", REFUSE, ALWAYS, "dirfd path int:flags", errno="EPERM"),
    _row("open_tree_attr", "mount", REFUSE, ALWAYS, "dirfd path int:flags inbuf:4 long:size", errno="EPERM"),
    _row("move_mount", "mount", REFUSE, ALWAYS, "dirfd path dirfd path int:flags", errno="EPERM"),
    _row("fsopen", "mount", REFUSE, ALWAYS, "string int:flags", errno="EPERM"),
    _row("fsconfig", "mount", REFUSE, ALWAYS, "fd int:command string - -", errno="EPERM"),
    _row("fsmount", "mount", REFUSE, ALWAYS, "fd int:flags int:attributes", errno="EPERM"),
    _row("fspick", "mount", REFUSE, ALWAYS, "dirfd path int:flags", errno="EPERM"),
    _row("mount_setattr", "mount", REFUSE, ALWAYS, "dirfd path int:flags inbuf:4 long:size", errno="EPERM"),
    _row("landlock_create_ruleset", "landlock", REFUSE, ALWAYS, "- long:size int:flags", errno="EOPNOTSUPP"),
    _row("landlock_add_rule", "landlock", REFUSE, ALWAYS, "- int:kind - int:flags", errno="EOPNOTSUPP"),
    _row("landlock_restrict_self", "landlock", REFUSE, ALWAYS, "- int:flags", errno="EOPNOTSUPP"),
    # The machine's administration.
    _row("swapon", "admin", CONTINUE, ALWAYS, "path int:flags"),
    _row("swapoff", "admin", CONTINUE, ALWAYS, "path"),
    _row("acct", "admin", CONTINUE, ALWAYS, "path"),
    _row("quotactl", "admin", CONTINUE, ALWAYS, "int:command path int:id -"),
    _row("quotactl_fd", "admin", CONTINUE, DESCRIPTOR, "fd int:command int:id -"),
    _row("finit_module", "admin", CONTINUE, DESCRIPTOR, "fd string int:flags"),
    _row("kexec_file_load", "admin", CONTINUE, DESCRIPTOR, "fd fd - - -"),
    # Processes, time and randomness, which must not differ between two runs of one schedule.
    _row("execve", "exec", CONTINUE, ALWAYS, "path - -"),
    _row("execveat", "exec", CONTINUE, ALWAYS, "dirfd path - - flags:exec"),
    _row("uselib", "exec", CONTINUE, ALWAYS, "path"),
    _row("fork", "clone", CONTINUE, ALWAYS, ""),
    _row("vfork", "clone", CONTINUE, ALWAYS, ""),
    _row("clone", "clone", CONTINUE, ALWAYS, "flags:clone - - - -"),
    _row("clone3", "clone", CONTINUE, ALWAYS, "inbuf:1 long:size"),
    _row("getcwd", "getcwd", CONTINUE, ALWAYS, "outbuf:1 long:size"),
    _row("exit_group", "exit", CONTINUE, ALWAYS, "int:status"),
    _row("kill", "kill", CONTINUE, ALWAYS, "- int:signal"),
    _row("tkill", "kill", CONTINUE, ALWAYS, "- int:signal"),
    _row("tgkill", "kill", CONTINUE, ALWAYS, "- - int:signal"),
    _row("pidfd_send_signal", "kill", CONTINUE, ALWAYS, "- int:signal - -"),
    _row("rt_sigqueueinfo", "kill", CONTINUE, ALWAYS, "- int:signal -"),
    _row("rt_tgsigqueueinfo", "kill", CONTINUE, ALWAYS, "- - int:signal -"),
    _row("wait4", "reap", CONTINUE, ALWAYS, "- - int:options -"),
    _row("waitid", "reap", CONTINUE, ALWAYS, "- - - int:options -"),
    _row("alarm", "timer", CONTINUE, ALWAYS, "int:seconds"),
    _row("setitimer", "timer", CONTINUE, ALWAYS, "- - -"),
    _row("timer_settime", "timer", CONTINUE, ALWAYS, "- - - -"),
    _row("getitimer", "timer", CONTINUE, ALWAYS, "- -"),
    _row("timer_gettime", "timer", CONTINUE, ALWAYS, "- -"),
    _row("timerfd_settime", "timer", CONTINUE, ALWAYS, "- - - -"),
    _row("nanosleep", "sleep", PERFORM, ALWAYS, "in:timespec out:timespec"),
    _row("clock_nanosleep", "sleep", PERFORM, ALWAYS, "int:clock int:flags in:timespec out:timespec"),
    _row("connect", "connect", CONTINUE, ALWAYS, "- - int:length"),
    _row("futex", "wait", CONTINUE, WAIT, "long:word int:operation int:expected in:timespec - -"),
    _row("poll", "select", CONTINUE, LIMITED, "- - int:timeout"),
    _row("ppoll", "select", CONTINUE, LIMITED, "- - inout:timespec - -"),
    _row("select", "select", CONTINUE, LIMITED, "- - - - inout:timeval"),
    _row("pselect6", "select", CONTINUE, LIMITED, "- - - - inout:timespec -"),
    _row("epoll_wait", "select", CONTINUE, LIMITED, "- - - int:timeout"),
    _row("epoll_pwait", "select", CONTINUE, LIMITED, "- - - int:timeout - -"),
    _row("epoll_pwait2", "select", CONTINUE, LIMITED, "- - - in:timespec - -"),
    _row("clock_gettime", "clock", PERFORM, CLOCK, "int:clock out:timespec"),
    _row("gettimeofday", "clock", PERFORM, ALWAYS, "out:timeval out:timezone"),
    _row("time", "clock", PERFORM, ALWAYS, "out:seconds"),
    _row("getrandom", "random", PERFORM, ALWAYS, "outbuf:1 long:length int:flags"),
    # A change of credentials: racecheck performs calls with its own.
    _row("setuid", "credentials", CONTINUE, ALWAYS, "-"),
    _row("setgid", "credentials", CONTINUE, ALWAYS, "-"),
    _row("setreuid", "credentials", CONTINUE, ALWAYS, "- -"),
    _row("setregid", "credentials", CONTINUE, ALWAYS, "- -"),
    _row("setresuid", "credentials", CONTINUE, ALWAYS, "- - -"),
    _row("setresgid", "credentials", CONTINUE, ALWAYS, "- - -"),
    _row("setfsuid", "credentials", CONTINUE, ALWAYS, "-"),
    _row("setfsgid", "credentials", CONTINUE, ALWAYS, "-"),
    _row("capset", "credentials", CONTINUE, ALWAYS, "- -"),
    # Other ways to another process, which are named where several ranks use them.
    _row("msgget", "channel", CONTINUE, ALWAYS, "int:key int:flags"),
    _row("msgsnd", "channel", CONTINUE, ALWAYS, "int:id - long:size int:flags"),
    _row("msgrcv", "channel", CONTINUE, ALWAYS, "int:id - long:size long:type int:flags"),
    _row("semget", "channel", CONTINUE, ALWAYS, "int:key int:count int:flags"),
    _row("semop", "channel", CONTINUE, ALWAYS, "int:id - long:count"),
    _row("semtimedop", "channel", CONTINUE, ALWAYS, "int:id - long:count -"),
    _row("shmget", "channel", CONTINUE, ALWAYS, "int:key long:size int:flags"),
    _row("shmat", "channel", CONTINUE, ALWAYS, "int:id - int:flags"),
    _row("mq_open", "channel", CONTINUE, ALWAYS, "string int:flags int:mode -"),
    _row("add_key", "channel", REFUSE, ALWAYS, "- string - long:size int:keyring", errno="ENOSYS"),
    _row("request_key", "channel", REFUSE, ALWAYS, "- string - int:keyring", errno="ENOSYS"),
    _row("keyctl", "channel", REFUSE, ALWAYS, "int:operation - - - -", errno="ENOSYS"),
    _row("sendmsg", "channel", CONTINUE, MESSAGE, "- - int:flags"),
    _row("pidfd_open", "channel", CONTINUE, ALWAYS, "int:pid int:flags"),
    _row("process_vm_readv", "channel", CONTINUE, ALWAYS, "int:pid - - - - -"),
    _row("process_vm_writev", "channel", CONTINUE, ALWAYS, "int:pid - - - - -"),
    _row("ptrace", "channel", CONTINUE, ALWAYS, "long:request long:pid - -"),
    _row("getpgid", "channel", CONTINUE, NAMED, "int:pid"),
    _row("setpgid", "channel", CONTINUE, NAMED, "int:pid int:group"),
    _row("getsid", "channel", CONTINUE, NAMED, "int:pid"),
    _row("sched_getaffinity", "channel", CONTINUE, NAMED, "int:pid - -"),
    _row("sched_setaffinity", "channel", CONTINUE, NAMED, "int:pid - -"),
    _row("sched_getparam", "channel", CONTINUE, NAMED, "int:pid -"),
    _row("sched_setparam", "channel", CONTINUE, NAMED, "int:pid -"),
    _row("sched_getscheduler", "channel", CONTINUE, NAMED, "int:pid"),
    _row("sched_setscheduler", "channel", CONTINUE, NAMED, "int:pid int:policy -"),
    _row("sched_getattr", "channel", CONTINUE, NAMED, "int:pid - - -"),
    _row("sched_setattr", "channel", CONTINUE, NAMED, "int:pid - -"),
    _row("getpriority", "channel", CONTINUE, NAMED, "int:kind int:pid"),
    _row("setpriority", "channel", CONTINUE, NAMED, "int:kind int:pid int:priority"),
    _row("ioprio_get", "channel", CONTINUE, NAMED, "int:kind int:pid"),
    _row("ioprio_set", "channel", CONTINUE, NAMED, "int:kind int:pid int:priority"),
    _row("prlimit64", "channel", CONTINUE, NAMED, "int:pid int:limit - -"),
)  # fmt: skip
"""By name.  Families are what `racecheck.model.nouns.Op.call` says."""

HIGHEST: Mapping[str, int] = {arch: max(numbers.values()) for arch, numbers in NUMBERS.items()}
"""By architecture: the highest number known."""


def number(name: str, arch: str) -> int | None:
    """Return the number of a call; None if the architecture does not have it.

    Raises `CannotRun` for an unknown architecture, `InternalError` for a call that is in neither list.
    """
    if name not in TABLE and name not in UNTOUCHED:
        raise InternalError(f"no system call is named {name!r}")
    return _numbers(arch).get(name)


def calls(arch: str) -> Mapping[int, Call]:
    """Return the rows of the table by number; raises `CannotRun` for an unknown architecture."""
    return {known: TABLE[name] for name, known in _numbers(arch).items() if name in TABLE}


def _numbers(arch: str) -> Mapping[str, int]:
    if arch not in NUMBERS:
        known = " and ".join(NUMBERS)
        raise CannotRun(f"racecheck supports {known}, not {arch or 'this machine'}")
    return NUMBERS[arch]
