package fairness

import (
	"fmt"
	"math"
)

// Shuffle sharding. Each flow is dealt a hand of a few queues out of many, by a hash of its name, and each of its
// requests goes into the least loaded queue of its hand. A flood fills the queues of its own hand; another flow is held
// up only if all queues of its hand are among them, which is rare although there are many more flows than queues.
//
// A hand is a sequence of handSize different numbers below deckSize. All such sequences are numbered; the hash picks
// one. Its digits in the mixed radix deckSize, deckSize-1, … are positions among the queues not yet dealt.

// maxHandSize bounds hands: a hand of n needs at least log2(n!) bits, and a hash has maxHashBits.
const maxHandSize = 15

// maxHashBits is how many bits of a hash a hand may use up. With all 64, the last card would be dealt unevenly.
const maxHashBits = 60

// checkHand says whether hands of this size can be dealt from so many queues.
func checkHand(deckSize, handSize int) error {
	switch {
	case deckSize <= 0 || handSize <= 0:
		return fmt.Errorf("%d queues and hands of %d: both must be positive", deckSize, handSize)
	case handSize > deckSize:
		return fmt.Errorf("a hand of %d queues out of %d", handSize, deckSize)
	case deckSize > 1<<26:
		return fmt.Errorf("%d queues are too many", deckSize)
	}
	if bits := int(math.Ceil(math.Log2(float64(deckSize)) * float64(handSize))); bits > maxHashBits {
		return fmt.Errorf("a hand of %d queues out of %d needs %d bits of a hash; there are %d", handSize, deckSize, bits,
			maxHashBits)
	}
	return nil
}

// deal fills hand with different numbers below deckSize, which depend on the hash alone.
func deal(hash uint64, deckSize int, hand []int) {
	for i := range hand {
		left := uint64(deckSize - i)
		card := int(hash % left)
		hash /= left
		hand[i] = card
	}
	// hand[i] counts only queues that were not dealt before it. Going back over the earlier positions, each that is at or
	// below the number moves it up by one; they are still positions, so the last one is changed first.
	for i := len(hand) - 1; i > 0; i-- {
		for j := i - 1; j >= 0; j-- {
			if hand[i] >= hand[j] {
				hand[i]++
			}
		}
	}
}
