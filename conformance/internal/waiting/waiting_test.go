package waiting

import "testing"

func TestCount(t *testing.T) {
	for text, want := range map[string]Count{
		// The condition that is polled is part of the statement; empty lines and comments are not.
		"g.Eventually(func() bool {\n\n// why\nreturn done()\n}, timeout).Should(BeTrue())": {1, 3, 3},
		// Once, although there is another call in it.
		"g.Eventually(func() {\ntime.Sleep(1)\n}).Should(Succeed())": {1, 3, 3},
		"g.Expect(env.CreateAndWait(ctx, o)).To(Succeed())":          {1, 1, 1},
		"if err := p.Settle(ctx); err != nil {\nt.Fatal(err)\n}":     {1, 3, 3},
		// The call is in the body of the outer statements.
		"for range 3 {\nif ready {\ntime.Sleep(1)\n}\n}":            {1, 1, 5},
		"t.Run(`a`, func(t *testing.T) {\n<-mgr.Elected()\nf()\n})": {1, 1, 4},
		"switch a {\ncase 1:\ns.settle()\n}":                        {1, 1, 4},
		"if a {\ns.settle()\n} else {\ns.settle()\n}":               {2, 2, 5},
		"f(`a\nb`) // Sleep":                                        {0, 0, 2},
		"settled := settle":                                         {0, 0, 1},
	} {
		const around = 3 // package, func, }
		want.Code += around
		got, err := inFile("", []byte("package p\nfunc f() {\n"+text+"\n}\n"))
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v:\n%s", got, err, want, text)
		}
	}
	if got, err := Folder(t.TempDir()); err == nil {
		t.Errorf("a folder without tests has %+v", got)
	}
}
