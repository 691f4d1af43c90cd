// A member by kafka-go, through its ConsumerGroup, which tells of generations.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"coterie.test/clients/telling"
	"github.com/segmentio/kafka-go"
)

var balancers = map[string]kafka.GroupBalancer{
	"range":      kafka.RangeGroupBalancer{},
	"roundrobin": kafka.RoundRobinGroupBalancer{},
}

func newGroup(told telling.Orders) *kafka.ConsumerGroup {
	var chosen []kafka.GroupBalancer
	for _, name := range strings.Split(told.Assignor, ",") {
		chosen = append(chosen, balancers[name])
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                     told.Group,
		Brokers:                []string{told.Bootstrap},
		Dialer:                 &kafka.Dialer{ClientID: told.ClientID, Timeout: 10 * time.Second},
		Topics:                 told.Topics,
		GroupBalancers:         chosen,
		SessionTimeout:         time.Duration(told.SessionTimeoutMs) * time.Millisecond,
		RebalanceTimeout:       30 * time.Second,
		HeartbeatInterval:      time.Duration(told.HeartbeatIntervalMs) * time.Millisecond,
		PartitionWatchInterval: time.Duration(told.MetadataMaxAgeMs) * time.Millisecond,
		WatchPartitionChanges:  true,
		StartOffset:            kafka.FirstOffset,
	})
	if err != nil {
		telling.Die(err)
	}
	return group
}

// read takes one partition until the generation ends.
func read(ctx context.Context, generation *kafka.Generation, bootstrap string, place telling.Place, offset int64) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: place.Topic, Partition: int(place.Partition), MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(offset); err != nil {
		telling.Die(err)
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		record := telling.Record{Place: place, Offset: message.Offset, Value: string(message.Value)}
		telling.Say("consumed", map[string]any{"records": []telling.Record{record}})
		next := map[string]map[int]int64{place.Topic: {int(place.Partition): message.Offset + 1}}
		if err := generation.CommitOffsets(next); err != nil {
			telling.Say("commit_failed", map[string]any{"error": err.Error()})
		}
	}
}

func main() {
	told := telling.Told()
	group := newGroup(told)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	telling.Say("started", nil)
	for {
		generation, err := group.Next(stopping)
		if stopping.Err() != nil {
			break
		}
		if err != nil {
			if errors.Is(err, kafka.ErrGroupClosed) {
				break
			}
			telling.Say("error", map[string]any{"error": err.Error()})
			continue
		}
		var places []telling.Place
		var reading sync.WaitGroup
		for topic, given := range generation.Assignments {
			for _, one := range given {
				places = append(places, telling.Place{Topic: topic, Partition: int32(one.ID)})
			}
		}
		telling.SayPartitions("assigned", places)
		for topic, given := range generation.Assignments {
			for _, one := range given {
				place, offset := telling.Place{Topic: topic, Partition: int32(one.ID)}, one.Offset
				reading.Add(1)
				generation.Start(func(ctx context.Context) {
					defer reading.Done()
					read(ctx, generation, told.Bootstrap, place, offset)
				})
			}
		}
		// The generation ends when all that was started has ended: this is the last of them to end.
		generation.Start(func(ctx context.Context) {
			<-ctx.Done()
			reading.Wait()
			telling.SayPartitions("revoked", places)
		})
	}
	group.Close()
	telling.Say("closed", nil)
	os.Exit(0)
}
