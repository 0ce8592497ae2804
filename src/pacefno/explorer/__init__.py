"""The explorer: one page in which trained models run in the browser while their input is dragged.

The page is a single HTML file that needs no server and no network: the fields, the models and the
motions as ONNX programs, and onnxruntime-web, which runs them, are inside.
"""

from pacefno.explorer.bundle import Model, Problem, build_page

__all__ = ["Model", "Problem", "build_page"]
