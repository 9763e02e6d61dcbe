package plane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/builtin"
	"plinth/internal/crd"
	"plinth/internal/gotypes"
	"plinth/internal/store"
)

// Image is the objects of a plane at one moment, of which other planes can be made (Config.Image). It never changes.
type Image struct {
	state *store.Image
	texts *crd.Texts
	types *builtin.Types // nil: the plane has a clock of its own
}

// State is the image for the storage of a plane that begins with it; nil for a nil Image.
func (i *Image) State() *store.Image {
	if i == nil {
		return nil
	}
	return i.state
}

// Image returns the objects of the plane as they are now.
func (p *Plane) Image() *Image { return p.image(p.Store.Image()) }

// Before returns the objects of the plane as they were before these records, which are all changes since a revision,
// oldest first.
func (p *Plane) Before(records []*store.Record) *Image {
	return p.image(p.Store.Image().Before(records))
}

func (p *Plane) image(state *store.Image) *Image {
	var earlier *crd.Texts
	if p.config.Image != nil {
		earlier = p.config.Image.texts
	}
	i := &Image{state: state, texts: crd.NewTexts(state.Versions(crd.Path), gotypes.Of[metav1.ObjectMeta], earlier)}
	if p.config.Now == nil {
		i.types = p.Types
	}
	return i
}
