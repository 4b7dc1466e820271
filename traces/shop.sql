-- A shop's sales, looked up customer by customer through an index, and joined with what was sold.
create table item(id integer primary key, category int, price int, name text);
create table sale(id integer primary key, item int, customer int, day int, amount int);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into item
select i, i % 97, (i * 7919) % 1000, printf('item %d %08x', i, (i * 2654435761) % 4294967296) from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
insert into sale
select i, (i * 48271) % 60000 + 1, (i * 69621) % 100000, i % 365, i % 13 from n;
create index sale_customer on sale(customer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
select category, count(*), sum(amount * price) from n
join sale on sale.customer = (n.i * 7919) % 100000
join item on item.id = sale.item
group by category order by 3 desc limit 5;
