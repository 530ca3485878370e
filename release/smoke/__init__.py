"""Programs that use an installed distribution; each runs outside the checkout, on the files alone.

``python runtime.py VERSION CONFORMANCE WORK``: the version that must be installed, a folder of
conformance bundles, a folder to write to. A program prints one line about what it has seen, and
ends with an error where that is not as it should be.
"""
