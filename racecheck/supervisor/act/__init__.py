"""An op is carried out: through the layers that change how, from faults and caches to the kernel's own answer."""
