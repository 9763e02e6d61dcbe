package controller

import "time"

// A namespace that could not be emptied (objects with finalizers are left) is tried again after retryAfter: nobody tells
// of the end of the last one. A change of the namespace itself is tried at once, but not more often than every restAfter.
const (
	retryAfter = time.Second
	restAfter  = 100 * time.Millisecond
)

// agenda is the namespaces that are to be emptied, by name, and when. It is pure: the time comes from outside.
type agenda map[string]*entry

type entry struct {
	at     time.Time
	rested time.Time // not before
	failed string    // the last error, which is told of once
}

// changed notes that a deleted namespace was seen.
func (a agenda) changed(name string, now time.Time) {
	e := a[name]
	if e == nil {
		a[name] = &entry{at: now}
		return
	}
	e.at = now
	if now.Before(e.rested) {
		e.at = e.rested
	}
}

// tried notes how an attempt ended, and says whether its error is news.
func (a agenda) tried(name string, done bool, err error, now time.Time) (news bool) {
	if done {
		delete(a, name)
		return false
	}
	e := a[name]
	text := ""
	if err != nil {
		text = err.Error()
	}
	news = text != "" && text != e.failed
	e.failed, e.at, e.rested = text, now.Add(retryAfter), now.Add(restAfter)
	return news
}

// due lists the namespaces whose time has come.
func (a agenda) due(now time.Time) []string {
	var names []string
	for name, e := range a {
		if !e.at.After(now) {
			names = append(names, name)
		}
	}
	return names
}

// next is when the first one is due.
func (a agenda) next() (at time.Time, any bool) {
	for _, e := range a {
		if !any || e.at.Before(at) {
			at, any = e.at, true
		}
	}
	return at, any
}
