import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;

/** A pool of threads, a collection, and an exception that a null pointer makes. */
public class Threads {
    public static void main(String[] words) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Long>> sums = new ArrayList<>();
        for (int task = 0; task < 8; task++) {
            final long from = task;
            sums.add(pool.submit(() -> {
                long sum = 0;
                for (long n = 0; n < 100_000; n++) {
                    sum += n * from;
                }
                return sum;
            }));
        }
        for (Future<Long> sum : sums) {
            System.out.println(sum.get());
        }
        pool.shutdown();
        System.gc();
        try {
            words = null;
            System.out.println(words.length);
        } catch (NullPointerException exception) {
            System.out.println("null pointer");
        }
        System.exit(4);
    }
}
