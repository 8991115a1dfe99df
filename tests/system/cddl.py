"""A CDDL validator that is not ours: the wheel of cddl.lock.

It is fetched once, by its hash, and kept in the cache as the images' downloads
are; nothing of it is installed.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

import hutchlib

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH_S = 300


def lock():
    with open(f"{HERE}/cddl.lock", encoding="ascii") as f:
        line = [x for x in f if not x.startswith("#")][0]
    return line.split()


def is_whole(path, sha):
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest() == sha
    except FileNotFoundError:
        return False


def wheel(folder):
    """Path of the wheel; one that is not what the lock says is not used."""
    name, version, file, _size, sha = lock()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.environ.get("HUTCH_CACHE") or os.path.join(home, "hutch")
    kept = f"{cache}/dl/{sha}"
    if is_whole(kept, sha):
        return kept
    wanted = f"{folder}/wanted"
    with open(wanted, "w", encoding="ascii") as f:
        f.write(f"{name}=={version} --hash=sha256:{sha}\n")
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet",
                    "--no-cache-dir", "--no-deps", "--require-hashes",
                    "--only-binary=:all:", "-r", wanted, "-d", folder],
                   check=True, timeout=FETCH_S)
    assert is_whole(f"{folder}/{file}", sha), file
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    # One rename: whoever looks sees all of it or nothing.
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(kept),
                                     delete=False) as part, \
            open(f"{folder}/{file}", "rb") as got:
        part.write(got.read())
        part.flush()
        os.fsync(part.fileno())
    os.rename(part.name, kept)
    return kept


def schemas(path, *rules):
    """Of each rule of the file a schema: validate_cbor(bytes) raises.  One by
    one: a choice of them would be as open as its widest."""
    if sys.version_info[:2] != (3, 11):
        raise hutchlib.Skip("the locked validator is for Python 3.11, this is "
                            + sys.version.split()[0])
    folder = tempfile.mkdtemp()
    with zipfile.ZipFile(wheel(folder)) as z:
        z.extractall(folder)
    sys.path.insert(0, folder)
    import pycddl
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return {r: pycddl.Schema(f"root = {r}\n{text}") for r in rules}
