puts [expr {6 * 7}]
