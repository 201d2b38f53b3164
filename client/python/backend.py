# SPDX-License-Identifier: BSD-3-Clause
"""Build backend for pip (PEP 517, 660): a wheel of the files in this directory.

The usual backends are downloaded by pip first, but cluster nodes often have no network. This one needs only Python.
"""
import base64
import hashlib
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "ckptfs"


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def project():
    """The strings and lists of strings of [project] in pyproject.toml, by name: Python has a reader of TOML only since 3.11."""
    table = re.search(r"^\[project\]\n(.*?)(?=^\[|\Z)", read("pyproject.toml"), re.M | re.S)[1]
    lists = re.findall(r"^([a-z-]+) = \[(.*?)\]$", table, re.M | re.S)
    return {**dict(re.findall(r'^([a-z-]+) = "(.*)"$', table, re.M)), **{name: re.findall(r'"(.*?)"', text) for name, text in lists}}


def metadata():
    p = project()
    fields = [("Metadata-Version", "2.4"), ("Name", p["name"]), ("Version", p["version"]), ("Summary", p["description"]),
              ("Keywords", ",".join(p["keywords"])), ("License-Expression", p["license"]),
              *(("License-File", name) for name in p["license-files"]), *(("Classifier", name) for name in p["classifiers"]),
              ("Requires-Python", p["requires-python"]), ("Description-Content-Type", "text/markdown")]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + read("README.md")


def stem():
    return f"{PACKAGE}-{project()['version']}"


def make_wheel(directory, files):
    """Writes a wheel with these files (name: text), then its metadata. The result is reproducible."""
    info, record = f"{stem()}.dist-info", ""
    name = f"{stem()}-py3-none-any.whl"
    files = {**files, **{f"{info}/licenses/{license}": read(license) for license in project()["license-files"]},
             f"{info}/METADATA": metadata(), f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: ckptfs\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
            z.writestr(entry(path), text)
        z.writestr(entry(f"{info}/RECORD"), f"{record}{info}/RECORD,,\n")
    return name


def entry(path):
    e = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    e.external_attr = 0o644 << 16
    e.compress_type = zipfile.ZIP_DEFLATED
    return e


def package_files():
    return {f"{PACKAGE}/{name}": read(f"{PACKAGE}/{name}") for name in sorted(os.listdir(os.path.join(HERE, PACKAGE))) if name.endswith((".py", ".typed"))}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return make_wheel(wheel_directory, package_files())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return make_wheel(wheel_directory, {f"{PACKAGE}.pth": f"{HERE}\n"})


def build_sdist(sdist_directory, config_settings=None):
    name = f"{stem()}.tar.gz"
    os.makedirs(sdist_directory, exist_ok=True)
    pkg_info = os.path.join(sdist_directory, "PKG-INFO")
    with open(pkg_info, "w", encoding="utf-8") as f:
        f.write(metadata())
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as t:
        t.add(pkg_info, f"{stem()}/PKG-INFO")
        for path in ["pyproject.toml", "README.md", "backend.py", *project()["license-files"], *package_files()]:
            t.add(os.path.realpath(os.path.join(HERE, path)), f"{stem()}/{path}")
    os.unlink(pkg_info)
    return name
