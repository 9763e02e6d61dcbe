// Package fairness compares which FlowSchema and PriorityLevelConfiguration requests of many users get, and how many
// seats the levels have, with the reference. testdata/classes.txt has the reference's answers; -rewrite updates it.
package fairness
