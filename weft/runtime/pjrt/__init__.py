"""Devices of PJRT plugins: TPUs, and every other accelerator whose vendor ships a plugin (docs/design/pjrt.md)."""
