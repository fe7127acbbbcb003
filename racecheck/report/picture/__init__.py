"""A finding as a picture in the browser: one HTML file that loads nothing."""
