"""The site of danaus: scripts/site.sh copies the documents and builds it."""
# SPDX-License-Identifier: Apache-2.0

project = "danaus"
author = "the danaus developers"
copyright = "the danaus developers"
extensions = ["myst_parser", "autoapi.extension", "sphinx.ext.napoleon"]
root_doc = "README"
exclude_patterns = ["bench/**", "LICENSE"]
html_theme = "furo"
html_title = "danaus"
myst_heading_anchors = 3
# What cffi reads is written by the build (python/make_abi.py).
suppress_warnings = ["autoapi.python_import_resolution"]
highlight_language = "none"

autoapi_dirs = ["python/danaus"]
autoapi_root = "python_api"
autoapi_add_toctree_entry = False
autoapi_keep_files = True
autoapi_options = ["members", "imported-members", "show-module-summary"]
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False

# Pages; what other modules have is seen where a package gives it a name.
MODULES = {
    "danaus", "danaus.patterns", "danaus.transforms", "danaus.records", "danaus.plot",
    "danaus.lazylinop", "danaus.torch", "danaus.torch.functional",
    "danaus.torch.hf_kernels", "danaus.torch.models", "danaus.torch.stateless",
    "danaus.torch.training",
}

# Sphinx has no contents of its own in a README that others show too.
CONTENTS = """

```{toctree}
:hidden:
:caption: Using danaus

docs/tutorial
docs/python
docs/models
docs/training
docs/evidence
docs/wheels
docs/cuda
docs/opencl
docs/formats
docs/performance
docs/papers
CHANGELOG
```

```{toctree}
:hidden:
:caption: Mathematics

docs/notation
docs/ks
docs/algebra
docs/transforms
docs/conv
docs/kernels
docs/gpu-kernels
docs/notes/README
```

```{toctree}
:hidden:
:glob:
:caption: C

api/base
api/device
api/*
```

```{toctree}
:hidden:
:caption: Python

python_api/danaus/index
```

```{toctree}
:hidden:
:caption: Working on danaus

CONTRIBUTING
docs/architecture
docs/conventions
docs/testing
docs/abi
```
"""
NOTES = """

```{toctree}
:hidden:
:glob:

*
```
"""


def skip(app, what, name, obj, skipped, options):
    return True if what in ("module", "package") and name not in MODULES else skipped


def add_contents(app, name, source):
    if name == "README":
        source[0] += CONTENTS
    elif name == "docs/notes/README":
        source[0] += NOTES


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("autoapi-skip-member", skip)
