-- Counts the orders, which touches each page of the file, and looks up the visited ones.
pragma mmap_size = 268435456;
select count(*) from orders;
select count(*), sum(price) from visit cross join orders on orders.id = visit.orders;
