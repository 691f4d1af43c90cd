// A member by franz-go.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"coterie.test/clients/telling"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func tell(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		var places []telling.Place
		for topic, numbers := range partitions {
			for _, number := range numbers {
				places = append(places, telling.Place{Topic: topic, Partition: number})
			}
		}
		telling.SayPartitions(event, places)
	}
}

func options(told telling.Orders) []kgo.Opt {
	var chosen []kgo.GroupBalancer
	for _, name := range strings.Split(told.Assignor, ",") {
		chosen = append(chosen, balancers[name])
	}
	given := []kgo.Opt{
		kgo.SeedBrokers(told.Bootstrap),
		kgo.ConsumerGroup(told.Group),
		kgo.ClientID(told.ClientID),
		kgo.Balancers(chosen...),
		kgo.SessionTimeout(time.Duration(told.SessionTimeoutMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(told.HeartbeatIntervalMs) * time.Millisecond),
		kgo.MetadataMaxAge(time.Duration(told.MetadataMaxAgeMs) * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("lost")),
	}
	if told.InstanceID != "" {
		given = append(given, kgo.InstanceID(told.InstanceID))
	}
	if told.Pattern != "" {
		return append(given, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+told.Pattern))
	}
	return append(given, kgo.ConsumeTopics(told.Topics...))
}

func take(client *kgo.Client, fetches kgo.Fetches) {
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.Canceled) {
			telling.Say("error", map[string]any{"error": err.Error()})
		}
	})
	var records []telling.Record
	fetches.EachRecord(func(record *kgo.Record) {
		place := telling.Place{Topic: record.Topic, Partition: record.Partition}
		records = append(records, telling.Record{Place: place, Offset: record.Offset, Value: string(record.Value)})
	})
	if len(records) == 0 {
		return
	}
	telling.Say("consumed", map[string]any{"records": records})
	err := client.CommitRecords(context.Background(), fetches.Records()...)
	var refused *kerr.Error
	if errors.As(err, &refused) {
		telling.Say("commit_failed", map[string]any{"error": refused.Message})
	} else if err != nil {
		telling.Die(err)
	}
}

func main() {
	client, err := kgo.NewClient(options(telling.Told())...)
	if err != nil {
		telling.Die(err)
	}
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	telling.Say("started", nil)
	for stopping.Err() == nil {
		take(client, client.PollFetches(stopping))
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	telling.Say("closed", nil)
	os.Exit(0)
}
