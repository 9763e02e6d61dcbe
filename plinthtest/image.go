package plinthtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"plinth/internal/auth/serviceaccount"
	"plinth/internal/pki"
	"plinth/internal/plane"
	"plinth/object"
)

// Image is the objects of a plane at one moment. It does not change, and is shared by the planes that begin with it.
// A plane in a bubble may begin with an image from outside; its objects have times of the other clock.
type Image struct {
	state    *plane.Image
	settings settings
	key      string // identifies its content in the cache of images; "": it is in none
}

// Snapshot returns the objects of the plane as they are now, for other planes and for Reset. It takes about as long
// as a GET.
func (p *Plane) Snapshot() *Image {
	return &Image{state: p.current().Image(), settings: p.settings}
}

// Reset replaces all objects of the plane by those of an image, which may be of another plane. Watches end, and
// clients that continue them list again: no resourceVersion is given out twice. Rules of Fault stay; the record of
// requests and the history begin anew. No request may be under way.
func (p *Plane) Reset(t testing.TB, image *Image) {
	t.Helper()
	if err := p.reset(t.Context(), image); err != nil {
		t.Fatalf("plinthtest: %v", err)
	}
}

func (p *Plane) reset(ctx context.Context, image *Image) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, followed := p.plane, p.history
	p.front.endWatches()
	err := old.Close()
	followed.close()
	if beginErr := p.begin(ctx, image.state, old.Store.Revision()+1); beginErr != nil {
		return errors.Join(err, beginErr)
	}
	p.front.forget()
	return err
}

// keys are those that the planes of a process share, so that tokens and certificates of one are valid at another.
type keys struct {
	authority *pki.Authority
	account   *serviceaccount.StaticKeys
}

var realKeys, bubbleKeys = sync.OnceValue(func() *keys { return newKeys(time.Now()) }),
	sync.OnceValue(func() *keys { return newKeys(bubbleStart) })

func sharedKeys(bubble bool) *keys {
	if bubble {
		return bubbleKeys()
	}
	return realKeys()
}

func newKeys(at time.Time) *keys {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic("plinthtest: " + err.Error()) // there are no random numbers
	}
	account, err := serviceaccount.NewStaticKeys([]crypto.PublicKey{private.Public()}, private)
	if err != nil {
		panic("plinthtest: " + err.Error())
	}
	authority, err := pki.Open("", "plinth-ca", at)
	if err != nil {
		panic("plinthtest: " + err.Error())
	}
	return &keys{authority, account}
}

// images are the images of new planes and of definitions, by settings, clock and content. They are made once in a
// process, so that a new plane need not create objects. A test has few of them; if there are many nevertheless, those
// that were made first go.
var images struct {
	mu    sync.Mutex
	byKey map[string]*Image
	order []string
}

const maxImages = 32

// cached returns the image of a key, and makes it on the first call. Others wait meanwhile.
func cached(key string, make func() (*Image, error)) (*Image, error) {
	images.mu.Lock()
	defer images.mu.Unlock()
	if found := images.byKey[key]; found != nil {
		return found, nil
	}
	made, err := make()
	if err != nil {
		return nil, err
	}
	made.key = key
	if images.byKey == nil {
		images.byKey = map[string]*Image{}
	}
	if len(images.order) == maxImages {
		delete(images.byKey, images.order[0])
		images.order = images.order[1:]
	}
	images.byKey[key] = made
	images.order = append(images.order, key)
	return made, nil
}

// initialImage is the objects of a new plane.
func initialImage(ctx context.Context, s settings, bubble bool) (*Image, error) {
	return cached(fmt.Sprintf("%s %t", s.key(), bubble), func() (*Image, error) {
		return s.image(ctx, nil, bubble, nil)
	})
}

// image makes a plane, creates objects in it, and returns its image. In a bubble the clock stands still at its
// beginning, so that the image does not depend on which bubble was the first.
func (s settings) image(ctx context.Context, from *plane.Image, bubble bool, objects []object.Value) (*Image, error) {
	s.controllers, s.hooks, s.logger = nil, nil, nil
	var now func() time.Time
	if bubble {
		now = func() time.Time { return bubbleStart }
	}
	c, err := s.config(bubble, from, 0, now)
	if err != nil {
		return nil, err
	}
	made, err := plane.New(ctx, *c)
	if err != nil {
		return nil, err
	}
	made.Run(nil)
	for _, o := range objects {
		if err = create(ctx, made, o); err != nil {
			break
		}
	}
	state := made.Image()
	return &Image{state: state, settings: s}, errors.Join(err, made.Close())
}

// withDefinitions returns the image with definitions in addition.
func (img *Image) withDefinitions(ctx context.Context, all []*definitions, bubble bool) (*Image, error) {
	if len(all) == 0 {
		return img, nil
	}
	var objects []object.Value
	key := img.key
	for _, d := range all {
		read, err := d.read()
		if err != nil {
			return nil, err
		}
		for _, o := range read.objects {
			name := o.At("metadata", "name").Str()
			objects = slices.DeleteFunc(objects, func(other object.Value) bool {
				return other.At("metadata", "name").Str() == name
			})
			objects = append(objects, o)
		}
		key += fmt.Sprintf(" %p", read)
	}
	add := func() (*Image, error) { return img.settings.image(ctx, img.state, bubble, objects) }
	if img.key == "" {
		return add()
	}
	return cached(key, add)
}

// definitions are the CustomResourceDefinitions in files.
type definitions struct {
	fsys  fs.FS
	globs []string
	known *read // they were read already; nil: they were not
}

// read are the definitions that were read from a file system.
type read struct{ objects []object.Value }

// reads are the results of definitions.read, by file system and patterns.
var reads sync.Map

// read reads the files, once in a process: they are those of the test, and do not change. A file system that is not
// comparable is read each time.
func (d *definitions) read() (*read, error) {
	type source struct {
		fsys  any
		globs string
	}
	if d.known != nil {
		return d.known, nil
	}
	key := source{d.fsys, fmt.Sprintf("%q", d.globs)}
	comparable := d.fsys != nil && reflect.ValueOf(d.fsys).Comparable()
	if comparable {
		if found, ok := reads.Load(key); ok {
			return found.(*read), nil
		}
	}
	names, err := d.files()
	if err != nil {
		return nil, err
	}
	made := &read{}
	for _, name := range names {
		text, err := fs.ReadFile(d.fsys, name)
		if err != nil {
			return nil, err
		}
		if err := made.add(name, text); err != nil {
			return nil, err
		}
	}
	if len(made.objects) == 0 {
		return nil, fmt.Errorf("CRDs: there is no CustomResourceDefinition in the files that match %q", d.globs)
	}
	if comparable {
		found, _ := reads.LoadOrStore(key, made)
		return found.(*read), nil
	}
	return made, nil
}

// add adds the definitions in a text.
func (r *read) add(name string, text []byte) error {
	objects, err := object.Documents(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, o := range objects {
		if o.At("kind").Str() == "CustomResourceDefinition" {
			r.objects = append(r.objects, o)
		}
	}
	return nil
}

// files are the names of the files, sorted, each of them once.
func (d *definitions) files() ([]string, error) {
	var names []string
	for _, glob := range d.globs {
		matches, err := fs.Glob(d.fsys, glob)
		if err != nil {
			return nil, fmt.Errorf("CRDs: %q: %w", glob, err)
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("CRDs: no file matches %q", glob)
		}
		names = append(names, matches...)
	}
	if len(d.globs) == 0 {
		err := fs.WalkDir(d.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
			switch path.Ext(name) {
			case ".yaml", ".yml", ".json":
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("CRDs: %w", err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
