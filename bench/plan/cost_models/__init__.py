"""Cost models: rates measured here, or devices that were named. One is loaded by name when it is asked for."""
