"""What tests of the SDKs share: where the two are, and how node runs files of
an application that has the TypeScript one installed."""
import os
import sys

TOP = os.environ.get("HUTCH_TOP") or os.path.dirname(os.path.dirname(
    os.path.dirname(os.path.abspath(__file__))))
PYTHON = "/usr/bin/python3"    # Debian's: it has Debian's httpx
PYTHON_SDK = f"{TOP}/api/sdk/python"
JSTOOLS = f"{TOP}/build/images/jstools"
PACKAGES = f"{TOP}/build/sdk/node_modules"
NODE = f"{JSTOOLS}/bin/node"
TSC = [NODE, f"{JSTOOLS}/node_modules/typescript/bin/tsc"]

# Of an application's files: as strict as the SDK's own.
TSC_CHECK = ["--noEmit", "--strict", "--noUncheckedIndexedAccess",
             "--target", "ES2022", "--module", "NodeNext",
             "--erasableSyntaxOnly", "--lib", "ES2022,DOM,DOM.Iterable",
             "--types", "node", "--typeRoots",
             f"{JSTOOLS}/node_modules/@types"]

os.environ["NODE_DISABLE_COMPILE_CACHE"] = "1"   # tsc would leave one in TMPDIR
sys.dont_write_bytecode = True
sys.path.insert(0, PYTHON_SDK)


def application(folder):
    """Makes `folder` one that has the package, as after npm install."""
    if not os.path.exists(PACKAGES):
        sys.exit(f"{PACKAGES} is missing: make sdk")
    os.makedirs(folder, exist_ok=True)
    os.symlink(PACKAGES, f"{folder}/node_modules")
    with open(f"{folder}/package.json", "w", encoding="utf-8") as f:
        f.write('{"type": "module"}\n')
    return folder
