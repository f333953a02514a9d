"""SmolLM2 as a DSA model: its calibration text; recipes and how to build it stand beside."""
