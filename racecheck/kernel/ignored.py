"""The system calls that the supervisor need not see: the complement of `racecheck.kernel.syscalls.TABLE`."""

from __future__ import annotations

from collections.abc import Mapping

_REASONS = {
    "memory": """
        mprotect munmap brk mremap msync mincore madvise process_madvise process_mrelease mlock mlock2
        munlock mlockall munlockall mseal remap_file_pages mbind set_mempolicy get_mempolicy
        set_mempolicy_home_node migrate_pages move_pages pkey_mprotect pkey_alloc pkey_free membarrier
        map_shadow_stack userfaultfd""",
    "shared memory, semaphores and messages": """
        shmctl shmdt semctl msgctl
        mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr""",
    "descriptor of no file: pipe, event, memory, process": """
        pipe pipe2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_gettime
        memfd_create memfd_secret epoll_create epoll_create1 epoll_ctl
        inotify_init inotify_init1 inotify_rm_watch""",
    "socket": """
        socket socketpair accept accept4 listen shutdown sendto recvfrom recvmsg sendmmsg
        recvmmsg getsockname getpeername setsockopt getsockopt""",
    "asynchronous I/O, seen at io_submit": """
        io_setup io_destroy io_getevents io_pgetevents io_cancel""",
    "signal": """
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
        rt_sigsuspend sigaltstack pause restart_syscall""",
    "lock in memory": """
        futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list rseq""",
    "process": """
        exit getpid getppid gettid getpgrp setsid
        set_tid_address prctl arch_prctl personality set_thread_area get_thread_area modify_ldt unshare
        kcmp""",
    "umask and working directory, read from /proc": """
        umask""",
    "scheduling": """
        sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu""",
    "credentials and limits": """
        getuid geteuid getgid getegid getresuid getresgid getgroups setgroups capget getrlimit setrlimit
        getrusage lsm_get_self_attr lsm_set_self_attr lsm_list_modules seccomp""",
    "clock and timer": """
        times settimeofday clock_settime clock_getres clock_adjtime adjtimex
        timer_create timer_getoverrun timer_delete""",
    "tracing": """
        perf_event_open bpf uprobe uretprobe""",
    "the machine": """
        uname sysinfo syslog sethostname setdomainname reboot kexec_load init_module delete_module iopl
        ioperm vhangup sysfs ustat statmount listmount""",
    "gone from the kernel": """
        _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall tuxcall
        security vserver epoll_ctl_old epoll_wait_old lookup_dcookie""",
}

UNTOUCHED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Every other call: its name, and why the supervisor need not see it."""
