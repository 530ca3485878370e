"""Releases: versions from tags, the files of a release, and the rehearsal of an installation.

``python -m release --help`` in the repository's root lists the commands.
"""
