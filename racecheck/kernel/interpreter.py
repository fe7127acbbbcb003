"""Where the state of the Python interpreter lies in memory; its lock, the GIL, is in there."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys

from racecheck.kernel.memory import Memory

_RTLD_DL_SYMENT = 1
_HEAD = struct.Struct("QQiQ")
"""How ``struct _gil_runtime_state`` begins in CPython 3.10 to 3.14 (pycore_gil.h): ``interval``, ``last_holder``,
``locked`` and ``switch_number``, which counts the changes of the holder; ``cond``, which waiters wait for, follows.
"""
_CONDITION = 48
"""Bytes of a ``pthread_cond_t``."""
_INTERVALS = (5003, 7919)
"""Switch intervals, in microseconds, so unusual that no other word of the interpreter's state takes both values."""


class _Symbol(ctypes.Structure):
    """``Elf64_Sym`` of elf(5)."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


@functools.cache
def runtime() -> range:
    """Return the addresses of CPython's ``_PyRuntime`` in this process and its forks, from dladdr1(3).

    Empty where that is not told.
    """
    library, symbol, about = ctypes.CDLL(None), ctypes.POINTER(_Symbol)(), (ctypes.c_void_p * 4)()
    try:
        first = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        found = library.dladdr1(ctypes.c_void_p(first), about, ctypes.byref(symbol), _RTLD_DL_SYMENT)
    except (ValueError, AttributeError):
        return range(0)
    return range(first, first + symbol.contents.size) if found and symbol else range(0)


@functools.cache
def gil() -> int:
    """Return the address of the GIL of this process and its forks; 0 if it was not found.

    The GIL has no symbol.  It is found by a word that the interpreter is asked to change, the switch interval, and
    checked by what must follow: the GIL is held, by this thread.
    """
    state, before, found = runtime(), sys.getswitchinterval(), []
    try:
        for each in _INTERVALS:
            sys.setswitchinterval(each / 1e6)
            found.append({*_words_like(round(sys.getswitchinterval() * 1e6), state)})
    finally:
        sys.setswitchinterval(before)
    ctypes.pythonapi.PyThreadState_Get.restype = ctypes.c_void_p
    holder = ctypes.pythonapi.PyThreadState_Get()
    heads = {each: _HEAD.unpack(ctypes.string_at(each, _HEAD.size)) for each in set.intersection(*found)}
    checked = [each for each, head in heads.items() if head[1:3] == (holder, 1)]
    return checked[0] if len(checked) == 1 else 0


def is_of_gil(gil_: int, word: int) -> bool:
    """Return whether a thread that waits for the futex ``word`` waits for the GIL at the address ``gil_``."""
    return 0 < gil_ <= word - _HEAD.size < gil_ + _CONDITION


def is_held(gil_: int, memory: Memory) -> bool:
    """Return whether a thread holds the GIL at the address ``gil_``; raises `OSError` if there is no such memory."""
    return bool(_HEAD.unpack(memory.read(gil_, _HEAD.size))[2])


def _words_like(value: int, state: range) -> list[int]:
    data, wanted, found = ctypes.string_at(state.start, len(state)), struct.pack("Q", value), []
    at = data.find(wanted)
    while at >= 0:
        found.append(state.start + at)
        at = data.find(wanted, at + 1)
    return found
