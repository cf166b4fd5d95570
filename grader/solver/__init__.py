"""The untrusted side: it calls the student's code and returns what came of it. It holds no answer."""
