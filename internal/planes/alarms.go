package planes

import "time"

// alarm is when a plane is opened although nobody asks for it: one of its controllers has something to do that waits
// for this moment, such as the end of a CertificateSigningRequest. A plane that is closed has no timer: all alarms are
// looked at together, several times within the time after which planes are closed. Alarms are in memory only: a plane
// that has one does not rest as far as the store knows, so that it is visited after a restart, and has it again.
//
// What a controller tries again because it has failed is such a moment, too. A plane in which something fails again and
// again would be opened all the time for that, so that there is at least alarmRest between two alarms of a plane.
type alarm struct {
	name string
	at   time.Time // by the clock of the configuration
}

// alarmsAtOnce is how many planes are opened by alarms at each look.
const alarmsAtOnce = 32

// alarmRest is the least time between two alarms of a plane. The first one is in time.
const alarmRest = time.Minute

// setAlarm has a plane opened at a moment, by the clock of the machine, and says whether it will be; zero: it will not.
// The caller holds the lock of the entry, and the plane is about to be closed.
func (p *Planes) setAlarm(o *opened, due time.Time) bool {
	if due.IsZero() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.Spec.ReadOnly {
		return false // its controllers could not do it
	}
	at := p.config.Now().Add(time.Until(due))
	if next := o.record.rung.Add(alarmRest); at.Before(next) {
		at = next
	}
	p.alarms[o.UID] = alarm{o.Name, at}
	return true
}

// ring opens the planes whose moment has come. They are closed again when there is nothing left to do.
func (p *Planes) ring() {
	now := p.config.Now()
	var due []string
	p.mu.Lock()
	for uid, a := range p.alarms {
		if len(due) == alarmsAtOnce {
			break
		}
		if !a.at.After(now) {
			delete(p.alarms, uid)
			if r := p.records[uid]; r != nil {
				r.rung = now
			}
			due = append(due, a.name)
		}
	}
	p.mu.Unlock()
	for _, name := range due {
		p.work.Go(func() { p.visitPlane(name) })
	}
}
