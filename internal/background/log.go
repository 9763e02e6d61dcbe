package background

// LogVariable is the variable of the environment in which a server of Start finds its log file.
const LogVariable = "PLINTH_LOG"
