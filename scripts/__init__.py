"""What is used to make and to test relight, and is no part of it."""
