"""System call numbers of x86-64 and aarch64, up to Linux 6.18.

From ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.  The kernel never
gives a number a second meaning.  From 424 on both architectures have the same.

Each line of a block is a number and the names that have it and the numbers after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_X86_64 = """
    0 read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
    15 rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore
    28 madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket
    42 connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair
    54 setsockopt getsockopt clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget
    69 msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename
    83 mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown umask gettimeofday
    97 getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid
    110 getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid
    121 getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    130 rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs getpriority
    141 setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max
    147 sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt
    155 pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2
    167 swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module
    177 get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid
    187 readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    197 removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity
    205 set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie
    213 epoll_create epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall
    220 semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    227 clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes
    236 vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
    245 mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init
    254 inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat
    263 unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare
    273 set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait
    282 signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2
    291 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg
    300 fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs
    307 sendmmsg setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr
    316 renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2
    326 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq uretprobe
    336 uprobe
"""

_AARCH64 = """
    0 io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr
    10 fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie
    19 eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch
    28 inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat
    39 umount2 mount pivot_root nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir
    51 chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 lseek read write
    65 readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee
    78 readlinkat newfstatat fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime
    87 timerfd_gettime utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare
    98 futex set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module
    106 delete_module timer_create timer_gettime timer_getoverrun timer_settime timer_delete clock_settime
    113 clock_gettime clock_getres clock_nanosleep syslog ptrace sched_setparam sched_setscheduler
    120 sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity sched_yield
    125 sched_get_priority_max sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill
    132 sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    139 rt_sigreturn setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid
    149 setresgid getresgid setfsuid setfsgid times setpgid getpgid getsid setsid getgroups setgroups uname
    161 sethostname setdomainname getrlimit setrlimit getrusage umask prctl getcpu gettimeofday settimeofday
    171 adjtimex getpid getppid getuid geteuid getgid getegid gettid sysinfo mq_open mq_unlink mq_timedsend
    183 mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl semtimedop semop
    194 shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname getpeername sendto
    207 recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key
    218 request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock mlockall
    231 munlockall mincore madvise remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages
    240 rt_tgsigqueueinfo perf_event_open accept4 recvmmsg
    260 wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs
    268 setns sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr
    275 sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat userfaultfd membarrier mlock2
    285 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq
    294 kexec_file_load
"""

_BOTH = """
    424 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig
    432 fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise
    441 epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
    446 landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
    452 fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr
    460 lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat
    467 open_tree_attr file_getattr file_setattr
"""


def _read(block: str) -> Iterator[tuple[str, int]]:
    for line in block.strip().splitlines():
        first, *names = line.split()
        for offset, name in enumerate(names):
            yield name, int(first) + offset


NUMBERS: Mapping[str, Mapping[str, int]] = {
    "x86_64": dict([*_read(_X86_64), *_read(_BOTH)]),
    "aarch64": dict([*_read(_AARCH64), *_read(_BOTH)]),
}
"""By architecture and name."""
