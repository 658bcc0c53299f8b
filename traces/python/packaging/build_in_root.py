"""Builds the package from the folder of the project, two above its Python sources."""

import os
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403 - the hooks of the backend

os.chdir(Path(__file__).parents[3])
