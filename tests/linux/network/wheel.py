"""Makes a wheel of the package `tiny`: `wheel.py SOURCE FOLDER`."""
import pathlib
import sys
import zipfile

source, folder = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.write(source / "tiny/__init__.py", "tiny/__init__.py")
    info = "tiny-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
