"""What the course's commands refuse."""


class CourseError(ValueError):
    """A course that can't be made or brought up to date; the message says what to do."""
