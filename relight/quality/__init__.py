"""How good the detections were: precision, recall, and whether relight may act alone."""
