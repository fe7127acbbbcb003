"""Where the state of the Python interpreter lies in memory; its lock, the GIL, is in there."""

from __future__ import annotations

import ctypes
import functools

_RTLD_DL_SYMENT = 1


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
    """The addresses of CPython's ``_PyRuntime`` in this process and in those that it forks, from dladdr1(3).

    Empty where that is not told.
    """
    library, symbol, about = ctypes.CDLL(None), ctypes.POINTER(_Symbol)(), (ctypes.c_void_p * 4)()
    try:
        first = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        found = library.dladdr1(ctypes.c_void_p(first), about, ctypes.byref(symbol), _RTLD_DL_SYMENT)
    except (ValueError, AttributeError):
        return range(0)
    return range(first, first + symbol.contents.size) if found and symbol else range(0)
