"""Tests of the console in a real browser: headless Chromium, driven by Playwright, against a server on loopback."""
