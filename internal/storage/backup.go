package storage

import (
	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/backup"
)

// backupCollectors are the metrics of a continuous backup.
func backupCollectors(s *backup.Shipper) []prometheus.Collector {
	gauge := func(name, help string, of func(backup.Figures) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return of(s.Figures()) })
	}
	counter := func(name, help string, of func(backup.Figures) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return of(s.Figures()) })
	}
	return []prometheus.Collector{
		gauge("plinth_backup_revision", "The revision up to which all is in the backup.",
			func(f backup.Figures) float64 { return float64(f.Revision) }),
		gauge("plinth_backup_timestamp_seconds", "When the last upload to the backup was acknowledged; 0: none was.",
			func(f backup.Figures) float64 {
				if f.At.IsZero() {
					return 0
				}
				return float64(f.At.UnixMilli()) / 1000
			}),
		gauge("plinth_backup_lag_seconds", "For how long there have been commits that are not in the backup.",
			func(f backup.Figures) float64 { return f.Lag.Seconds() }),
		gauge("plinth_backup_stopped", "1: the backup has ended, as another server writes to its place.",
			func(f backup.Figures) float64 {
				if f.Stopped {
					return 1
				}
				return 0
			}),
		counter("plinth_backup_bytes_total", "Bytes that were uploaded to the backup.",
			func(f backup.Figures) float64 { return float64(f.Bytes) }),
		counter("plinth_backup_errors_total", "Attempts to upload to the backup that have failed.",
			func(f backup.Figures) float64 { return float64(f.Errors) }),
	}
}
