"""Every item of five courses on differential privacy, run with this library and compared with an independent value."""
