package encryption

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a plugin whose calls of Decrypt take as long as they may while it hangs.
type hanging struct {
	hangs bool
	calls int
}

const hangingTimeout = 3 * time.Second

func (*hanging) Status(context.Context) (status, error) { return status{"v2", "ok", "key"}, nil }

func (*hanging) Encrypt(_ context.Context, _ string, plain []byte) (*envelope, error) {
	return &envelope{keyID: "key", source: append([]byte("sealed "), plain...)}, nil
}

func (p *hanging) Decrypt(_ context.Context, _ string, e *envelope) ([]byte, error) {
	if p.calls++; p.hangs {
		time.Sleep(hangingTimeout)
		return nil, context.DeadlineExceeded
	}
	time.Sleep(time.Millisecond)
	return []byte(strings.TrimPrefix(string(e.source), "sealed ")), nil
}

// sealedBy is a value that another process has made, whose key is its own.
func sealedBy(t *testing.T) []byte {
	t.Helper()
	other := newKMS("test", &hanging{}, hangingTimeout, Options{}.withDefaults())
	if err := other.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	seal, err := other.seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return seal.Append(nil, "key", []byte("plain"))
}

// A plugin that hangs holds up those in a hurry once, for the time that they have. The calls go on without them, one
// for each key; those that have the time wait for them; and when one has succeeded, those in a hurry wait again.
//
// SPEC: STORE-5
func TestHangingPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &hanging{}
		k := newKMS("test", p, hangingTimeout, Options{}.withDefaults())
		if err := k.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		open := func(hurried bool, value []byte) (took time.Duration, err error) {
			ctx, cancel := context.WithCancel(t.Context())
			if hurried {
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
			}
			defer cancel()
			begin := time.Now()
			o, err := k.open(ctx, "key", value)
			if err == nil && string(o.Plain) != "plain" {
				t.Errorf("decrypted %q", o.Plain)
			}
			return time.Since(begin), err
		}
		first, second, third := sealedBy(t), sealedBy(t), sealedBy(t)
		if took, err := open(true, first); err != nil || took != time.Millisecond {
			t.Errorf("a plugin that answers: %v after %s", err, took)
		}
		p.hangs = true
		if took, err := open(true, second); !errors.Is(err, errSlow) || took != 500*time.Millisecond {
			t.Errorf("the first value of a plugin that hangs: %v after %s", err, took)
		}
		for _, value := range [][]byte{second, third, second} {
			if took, err := open(true, value); !errors.Is(err, errSlow) || took != 0 {
				t.Errorf("a later value: %v after %s", err, took)
			}
		}
		if took, err := open(true, first); err != nil || took != 0 {
			t.Errorf("a value whose key is known: %v after %s", err, took)
		}
		if took, err := open(false, second); errors.Is(err, errSlow) || err == nil || took != 2500*time.Millisecond {
			t.Errorf("one that has the time: %v after %s", err, took)
		}
		if p.calls != 3 {
			t.Errorf("%d calls for three keys", p.calls)
		}
		p.hangs = false
		time.Sleep(2 * failedTTL)
		if took, err := open(false, second); err != nil || took != time.Millisecond {
			t.Errorf("when it answers again: %v after %s", err, took)
		}
		if took, err := open(true, third); err != nil || took != time.Millisecond {
			t.Errorf("in a hurry again: %v after %s", err, took)
		}
	})
}
