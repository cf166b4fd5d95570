"""An nbgrader course: folder and notebooks, the parts that nbgrader calls, exports."""
