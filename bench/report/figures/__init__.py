"""Figures of reports. Each file exports one figure as FIGURE; the file's name is the figure's name."""
