// Package encryption compares the encryption at rest with the reference's: which configurations are accepted, and with
// which errors; and what is stored, in both directions, with static keys and with a plugin.
package encryption
