package peerproxy

import (
	"time"

	"plinth/internal/discovery"
	"plinth/object"
)

// grace is how long a version that was shared is left out after it is gone.
const grace = 5 * time.Minute

// shared are the versions that are left out of what peers serve.
//
//	left out = now ∪ gone
type shared struct {
	now  *Versions
	gone map[[2]string]time.Time // since when they are not shared any more
}

// filtered is what is used of known. It does not change.
type filtered struct {
	of         *known
	now        *Versions
	gone       Versions
	discovered *discovery.Peers
}

func (v *filtered) leftOut(group, version string) bool {
	key := [2]string{group, version}
	return v.now != nil && (*v.now)[key] || v.gone[key]
}

// now returns what is used of what peers serve, with the versions left out that are shared at this moment; nil if no
// peer is known.
func (p *Proxy) now() *filtered {
	k := p.known.Load()
	if k == nil {
		return nil
	}
	now := p.Shared()
	if v := p.filtered.Load(); v != nil && v.of == k && v.now == now {
		return v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(now)
	v := &filtered{of: k, now: now, gone: Versions{}}
	for key := range p.shared.gone {
		v.gone[key] = true
	}
	v.discovered = &discovery.Peers{Own: k.own, By: map[string][]object.Value{}}
	for identity, groups := range k.groups {
		v.discovered.By[identity] = discovery.Without(groups, v.leftOut)
	}
	p.filtered.Store(v)
	return v
}

// update notes which versions are not shared any more. The caller holds the lock.
func (p *Proxy) update(now *Versions) {
	before := p.shared.now
	p.shared.now = now
	if before == nil || before == now {
		return
	}
	for key := range *before {
		if now != nil && (*now)[key] {
			continue
		}
		if p.shared.gone == nil {
			p.shared.gone = map[[2]string]time.Time{}
		}
		p.shared.gone[key] = time.Now()
		select {
		case p.expire <- struct{}{}:
		default:
		}
	}
	if now == nil {
		return
	}
	for key := range p.shared.gone {
		if (*now)[key] {
			delete(p.shared.gone, key)
		}
	}
}

// expired forgets the versions that have been gone for long enough, before documents are fetched in which they are only
// if a peer serves them itself. It returns how long it takes until the next one is; 0: there is none.
func (p *Proxy) expired(now time.Time) (next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(p.Shared())
	for key, since := range p.shared.gone {
		left := since.Add(grace).Sub(now)
		switch {
		case left <= 0:
			delete(p.shared.gone, key)
		case next == 0 || left < next:
			next = left
		}
	}
	return next
}
