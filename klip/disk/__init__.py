"""Everything that changes what lies on a disk: a dozen operations, and no other way to do it.

Knows no other room; whoever writes files may import it. Callers write `operations.replace(...)`, so
that a test can record what they do, and build every state in which a crash could leave the disk.
"""
